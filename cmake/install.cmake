# install.cmake: the library as others find it: find_package(gnstor) gives gnstor::gnstor.
