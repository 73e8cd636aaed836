// command_table_test.cpp: outstanding commands have entries and ids of their own, and the table knows how
// nearly in order a drive completes writes.
#include "nvmf/target/command_table.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace gnstor::nvmf {
namespace {

Capsule write_capsule(std::uint16_t command_id) {
    Capsule capsule{};
    capsule.command.command_id = command_id;
    capsule.command.opcode = static_cast<std::uint8_t>(nvme::IoOpcode::kWrite);
    capsule.invalidate_key = 7u + command_id;
    return capsule;
}

/// A write with its payload in the capsule that goes to the drive; returns its entry.
std::uint32_t send_write(CommandTable& table, std::uint16_t command_id) {
    table.begin(command_id);
    const std::uint32_t index = table.take(write_capsule(command_id));
    table[index].carries_blocks = true;
    table.to_drive(table[index], false);
    return index;
}

void complete(CommandTable& table, std::uint32_t index) {
    table.completed(table[index]);
    table.end(table[index].command_id);
    table.give(index);
}

TEST(CommandTable, EveryOutstandingCommandHasItsOwnEntryUntilItIsGivenBack) {
    CommandTable table(4);
    std::set<std::uint32_t> taken;
    for (std::uint16_t id = 0; id < 4; ++id) {
        EXPECT_FALSE(table.full());
        table.begin(id);
        const std::uint32_t index = table.take(write_capsule(id));
        EXPECT_TRUE(taken.insert(index).second) << "entry " << index << " was given out twice";
        EXPECT_TRUE(table.is_busy(index));
        EXPECT_EQ(table.find(id), index);
        EXPECT_EQ(table[index].invalidate_key, 7u + id);
    }
    EXPECT_TRUE(table.full());
    EXPECT_FALSE(table.is_busy(4)) << "there is no such entry";
    const std::uint32_t given = *table.find(2);
    table[given].holds_message = table[given].has_page = true;
    table.end(2);
    table.give(given);
    EXPECT_FALSE(table.full());
    EXPECT_FALSE(table.is_outstanding(2));
    EXPECT_FALSE(table.find(2).has_value());
    table.begin(9);
    EXPECT_EQ(table.take(write_capsule(9)), given);
    EXPECT_FALSE(table[given].holds_message || table[given].has_page) << "flags of the last command";
}

TEST(CommandTable, EventRequestsAtTheDriveDoNotHoldUpDraining) {
    CommandTable table(4);
    table.begin(1);
    const std::uint32_t event = table.take(write_capsule(1));
    table.to_drive(table[event], true);
    const std::uint32_t write = send_write(table, 2);
    EXPECT_FALSE(table.drained());
    complete(table, write);
    EXPECT_TRUE(table.any_at_drive());
    EXPECT_TRUE(table.drained());
    table.silence_event_requests();
    EXPECT_TRUE(table[event].unanswered);
}

TEST(CommandTable, AfterManyWritesInOrderPayloadMayBeReadInPlaceUntilOneIsOvertakenByFar) {
    for (const bool timed : {false, true}) {
        CommandTable table(16);
        table.set_drive(timed);
        const std::uint32_t allowed = timed ? 4 : 12;  // a quarter, or three quarters, of the entries
        for (std::uint32_t i = 0; i < 255; ++i) complete(table, send_write(table, 1));
        EXPECT_FALSE(table.writes_in_order());
        complete(table, send_write(table, 1));
        EXPECT_TRUE(table.writes_in_order());
        for (const std::uint32_t overtaken : {allowed, allowed + 1}) {
            const std::uint32_t late = send_write(table, 100);
            for (std::uint32_t i = 0; i < overtaken; ++i) complete(table, send_write(table, 1));
            complete(table, late);
            EXPECT_EQ(table.writes_in_order(), overtaken == allowed)
                << overtaken << " of 16, timed " << timed;
        }
    }
}

TEST(CommandTable, OnlyWritesWithPayloadInTheCapsuleCountForTheOrder) {
    CommandTable table(16);
    table.set_drive(false);
    for (std::uint32_t i = 0; i < 1000; ++i) {
        const std::uint32_t index = send_write(table, 1);
        table[index].carries_blocks = false;
        complete(table, index);
    }
    EXPECT_FALSE(table.writes_in_order());
}

}  // namespace
}  // namespace gnstor::nvmf
