#include <gnstor/base/shell_word.hpp>

#include <gtest/gtest.h>

namespace gnstor {
namespace {

TEST(ShellWord, IsNotQuotedIfAShellGivesNoCharacterASpecialMeaning) {
    for (const char* word :
         {"a", "/var/lib/gnstor/ssd-0.store", "node_1@host:4791", "--ssds=4", "1,2", "+5%"})
        EXPECT_EQ(shell_word(word), word);
}

TEST(ShellWord, IsQuotedIfAShellWouldInterpretACharacter) {
    EXPECT_EQ(shell_word(""), "''");
    EXPECT_EQ(shell_word("my disk/store"), "'my disk/store'");
    EXPECT_EQ(shell_word("~/array"), "'~/array'");
    EXPECT_EQ(shell_word("$HOME`id`\"*?!\\"), "'$HOME`id`\"*?!\\'");
    EXPECT_EQ(shell_word("it's"), R"('it'\''s')");
    EXPECT_EQ(shell_word("\xC3\xA4"), "'\xC3\xA4'");
}

// One by one: beside another special character, one that is taken for an ordinary one is quoted all the same.
TEST(ShellWord, IsQuotedForEachCharacterThatAShellInterpretsAlone) {
    for (const char c : std::string_view(" \t\n!\"#$&()*;<>?[\\]^`{|}~"))
        EXPECT_EQ(shell_word(std::string("a") + c), std::string("'a") + c + "'") << "character " << int{c};
}

}  // namespace
}  // namespace gnstor
