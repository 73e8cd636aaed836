# embed_profiles.cmake: the profiles of a folder as C++ strings, so that a program knows them wherever it runs.
file(GLOB profiles ${IN}/*.json)
set(entries "")
foreach(profile ${profiles})
    get_filename_component(name ${profile} NAME_WE)
    file(READ ${profile} text)
    string(APPEND entries "    {\"${name}\", R\"~~~(${text})~~~\"},\n")
endforeach()
file(WRITE ${OUT}
    "#include \"embedded/profile.hpp\"\nnamespace gnstor::embedded {\nconst std::vector<BuiltInProfile>& built_in_profiles() {\n    static const std::vector<BuiltInProfile> kAll = {\n${entries}    };\n    return kAll;\n}\n}\n")
