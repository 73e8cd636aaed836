// served_options.cpp: the words of --array.
#include "served_options.hpp"

namespace gnstor::bench {

void add_served_options(CLI::App& app, ServedArrayOptions& options, const std::string& what,
                        std::initializer_list<const char*> own) {
    CLI::Option* const array = app.add_option("--array", options.array,
                                              "measure an array that other processes serve, named by "
                                              "unix:PATH, https://HOST:PORT or http://HOST:PORT of its "
                                              "gnstord; " +
                                                  what);
    app.add_option("--token-file", options.token_file,
                   "file with gnstord's access token, for --array https://... or http://...")
        ->needs(array);
    app.add_option(
           "--tls-ca", options.tls_ca,
           "file with the CA of gnstord's certificate, for --array https://...; default: the system's CAs")
        ->needs(array);
    app.add_option("--tls-fingerprint", options.tls_fingerprint,
                   "SHA256:... of gnstord's certificate, for --array https://...")
        ->needs(array);
    app.add_option("--address", options.address, "this machine's IP address on the udp wire, for --array")
        ->needs(array);
    for (const char* option : own) array->excludes(app.get_option(option));
}

}  // namespace gnstor::bench
