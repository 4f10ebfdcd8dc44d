"""Scripts that the server runs, each as one atomic step.

Redis runs a script without any other command in between, and its writes are one unit for replicas and for the
append-only file. So entries and the number of their checkpoint are written together, and the state of a stream and its
entries are read together. If a command of a script fails, the writes before it stay. So ``WRITE`` checks all that could
fail before its first write.
"""

from __future__ import annotations

from typing import Final

LOOK: Final = """
local found = redis.call('TYPE', KEYS[1])['ok']
if found == 'none' then return false end
if found ~= 'stream' then return found end
local info = redis.call('XINFO', 'STREAM', KEYS[1])
local fields = {}
for n = 1, #info, 2 do fields[info[n]] = info[n + 1] end
local entries = {}
if tonumber(ARGV[3]) > 0 then
    entries = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', ARGV[3])
end
return {fields['entries-added'], fields['length'], fields['last-generated-id'],
        fields['recorded-first-entry-id'], entries}
"""
"""Return the counters of a stream, and its entries from ARGV[1] to ARGV[2], at most ARGV[3].

Nothing if there is no such key; the type of a key that is no stream.
"""

START_GROUP: Final = """
local found = redis.call('TYPE', KEYS[1])['ok']
if found ~= 'stream' then return {found} end
local info = redis.call('XINFO', 'STREAM', KEYS[1])
local fields = {}
for n = 1, #info, 2 do fields[info[n]] = info[n + 1] end
if ARGV[2] == 'continue' then
    for _, one in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
        if one[2] == ARGV[1] then return {'ok', fields['last-generated-id']} end
    end
    return {'group'}
end
local made
if ARGV[2] == 'earliest' then
    local removed = fields['entries-added'] - fields['length']
    made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0-0', 'ENTRIESREAD', removed)
elseif ARGV[2] == 'latest' then
    made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '$', 'ENTRIESREAD', fields['entries-added'])
else
    made = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], ARGV[2])
end
if made['err'] and not string.find(made['err'], 'BUSYGROUP') then return made end
return {'ok', fields['last-generated-id']}
"""
"""Create group ARGV[1] after id ARGV[2], ``earliest`` or ``latest``, unless it exists; ``continue``: it must exist.

Return ``ok`` and the last id of the stream; ``group`` if the group is missing; else the type of the key.
"""

READ_SHARED: Final = """
local found = redis.call('TYPE', KEYS[1])['ok']
if found ~= 'stream' then return {found} end
local function fields_of(list)
    local fields = {}
    for n = 1, #list, 2 do fields[list[n]] = list[n + 1] end
    return fields
end
local group
for _, one in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    if one[2] == ARGV[1] then group = fields_of(one) end
end
if not group then return {'group'} end
local last, read, lost = group['last-delivered-id'], group['entries-read'], 0
if read and #redis.call('XRANGE', KEYS[1], '-', last, 'COUNT', 1) == 0 then
    local stream = fields_of(redis.call('XINFO', 'STREAM', KEYS[1]))
    lost = stream['entries-added'] - read - stream['length']
    if lost > 0 then
        if ARGV[4] == 'fail' then return {'ok', lost, last, {}} end
        local added, id = stream['entries-added'], last
        if ARGV[4] == 'latest' then id = stream['last-generated-id'] else added = added - stream['length'] end
        redis.call('XGROUP', 'SETID', KEYS[1], ARGV[1], id, 'ENTRIESREAD', added)
        last = id
    end
end
local got = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', ARGV[3], 'STREAMS', KEYS[1], '>')
return {'ok', math.max(lost, 0), last, got and got[1][2] or {}}
"""
"""Deliver at most ARGV[3] new entries to consumer ARGV[2] of group ARGV[1].

Return ``ok``, the number of entries that were removed undelivered, the last id that the group had, and the entries;
``group`` if the group is missing; else the type of a key that is no stream. ARGV[4] is the policy for removed entries:
``fail`` delivers nothing, ``latest`` continues at the end.
"""

CLAIM: Final = """
local ids, removed, start = {}, {}, '-'
local most, page = tonumber(ARGV[4]), tonumber(ARGV[5])
while #ids + #removed < most do
    local due = redis.pcall('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[3], start, '+', page)
    if due['err'] then return string.find(due['err'], 'NOGROUP') and {{}, {}} or due end
    for _, one in ipairs(due) do
        if one[2] ~= ARGV[2] and #ids + #removed < most then
            local found = redis.call('XRANGE', KEYS[1], one[1], one[1])
            table.insert(#found > 0 and ids or removed, one[1])
        end
    end
    if #due < page then break end
    start = '(' .. due[#due][1]
end
if #ids == 0 then return {{}, removed} end
return {redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], unpack(ids)), removed}
"""
"""Claim at most ARGV[4] entries of group ARGV[1] for consumer ARGV[2].

They are entries that others have got and not acknowledged for ARGV[3] ms. Return them, and the ids of those that do not
exist any more. The latter remain pending for their consumers, so they are found again if the answer is lost. None if
the group is missing. ARGV[5] is the number of pending entries that are listed at a time.
"""

BEGIN: Final = """
local run = redis.call('HGET', KEYS[1], 'run')
local found = redis.call('HGETALL', KEYS[1])
if run == false and ARGV[2] == 'continue' then return found end
for n = 1, #found, 2 do
    local checkpoint = string.match(found[n + 1], '^(%d+) ')
    if found[n] ~= 'run' and checkpoint and tonumber(checkpoint) > tonumber(ARGV[3]) then return found end
end
redis.call('HSET', KEYS[1], 'run', ARGV[1])
return found
"""
"""Begin run ARGV[1], unless the output is newer than checkpoint ARGV[3]. Return the hash of the output as it was.

ARGV[2] is ``continue`` if the hash must exist.
"""

WRITE: Final = """
local state = KEYS[1]
if ARGV[1] ~= '' then
    local run = redis.call('HGET', state, 'run')
    if run == false then return 'none' end
    if run ~= ARGV[1] then return 'fenced' end
    local written = redis.call('HGET', state, ARGV[2])
    if written ~= ARGV[3] then return written or 'none' end
end
local at = 5
for n = 2, #KEYS do
    local found = redis.call('TYPE', KEYS[n])['ok']
    if found ~= 'none' and found ~= ARGV[at] then return 'type ' .. found .. ' ' .. KEYS[n] end
    at = at + 1
end
while at <= #ARGV do
    local count = tonumber(ARGV[at])
    local command = {}
    for n = 1, count do command[n] = ARGV[at + n] end
    command[2] = KEYS[tonumber(command[2])]
    redis.call(unpack(command))
    at = at + count + 1
end
if ARGV[1] ~= '' then redis.call('HSET', state, ARGV[2], ARGV[4]) end
return 'done'
"""
"""Run commands, and set field ARGV[2] of the hash of the output from ARGV[3] to ARGV[4], in one step.

Nothing is written unless the run is ARGV[1], the field is ARGV[3], and each key has its type in ARGV or does not exist.
An empty ARGV[1]: without a hash. Each command is its length, its name, the index of its key in KEYS, and its arguments.
"""
