// Package simdrive is a simulated disk drive: sectors, a volatile write cache,
// flush, FUA, power cuts, and drives that lie.
//
// It guarantees, for a drive without faults:
//
//   - Reads return the newest completed version of every sector.
//   - A flush covers exactly the writes that completed before it arrived, and
//     they are durable when it returns. A write that completes while the flush
//     is under way is not covered, and a version that is overwritten meanwhile
//     is still what the flush makes durable.
//   - A FUA write makes its own sectors durable, and nothing else. Older cached
//     versions of these sectors are superseded and never reach the medium later.
//   - At a cut every sector is left with one of its versions since (and with)
//     the last covered one; a write that was in flight counts as the newest. No
//     sector is mixed from two versions, and no sector outside a write changes.
//   - After the cut every request fails. The next power-on starts a new
//     generation, and a handle of an older one fails for ever, so that nothing
//     that still holds one can write into the new image.
//
// A drive is strict by default: what no flush or FUA covered is gone after a
// cut. [SurviveRandom] leaves, for each unit of 512 B or 4 KiB, the covered
// version, the newest, or one older version that was sampled uniformly from
// those between; all choices are independent of each other. [Fault] values plant lies and damage;
// they compose, have schedules, and print as text that parses back.
//
// # Randomness
//
// Nothing here is random but through [Config.Seed]. Each power-on generation g
// has its own generators, PCG seeded with splitmix64 of (seed, g, stream), where
// the stream is 0 for the sampling of older versions, 1 for destaging, 2 for
// what survives the cut, and 16+i for fault number i. No generation draws from
// those of another, so one cycle replays alone: start a drive with the same
// seed, with [Config.FirstGeneration] set to that cycle's number and with its
// durable contents, and issue the same requests in the same order.
//
// # Cost
//
// A write costs one map look-up and one copy for each 4 KiB block, and
// allocates nothing once the buffers are warm. Memory is about one 4 KiB block
// for each dirty block, two where an older version is sampled, and as many again
// for each flush that is still under way over the same block. Blocks of the
// durable contents are held in memory unless [Config.Base] holds them.
// [Config.KeepCut] reads each block again at its first write after a cut, and
// holds what it read until the next. The log,
// and the faults that need to know what was there before (unserializable,
// metadata-old), cost more: they say so.
package simdrive
