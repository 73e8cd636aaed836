# embed_openapi.cmake: openapi.json as a C++ string, in pieces that every compiler takes.
file(READ ${IN} text)
string(LENGTH "${text}" length)
set(pieces "")
set(at 0)
while(at LESS length)
    string(SUBSTRING "${text}" ${at} 8000 piece)
    string(APPEND pieces "R\"~~~(${piece})~~~\"\n")
    math(EXPR at "${at} + 8000")
endwhile()
file(WRITE ${OUT}
    "#include <string_view>\nnamespace gnstor::daemon {\nextern const std::string_view kOpenApiText;\nconst std::string_view kOpenApiText =\n${pieces};\n}\n")
