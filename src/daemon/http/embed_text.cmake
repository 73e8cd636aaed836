# embed_text.cmake: a text file as the C++ string NAME, in pieces that every compiler takes.
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
    "#include <string_view>\nnamespace gnstor::daemon {\nextern const std::string_view ${NAME};\nconst std::string_view ${NAME} =\n${pieces};\n}\n")
