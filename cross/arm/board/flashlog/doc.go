// Package flashlog keeps a board's readings in flash memory, so that they survive reboots, a loss
// of power and the watchdog. A Log is a board.Store:
//
//	readings, err := flashlog.New(machine.Flash, nil)
//	if err != nil {
//		println("FATAL", err.Error())
//		return
//	}
//	firmware, err := board.New(board.Config{Store: readings, ...})
//
// The log writes records one after the other through all erase blocks, and begins again with the
// oldest block. So all blocks wear alike, and a reading costs one write. Each record has a checksum
// and says which readings the hub has: forgetting a reading writes nothing. After a reset, readings
// that the hub took since the latest write are sent again. Log.Sync records them; boards that
// sleep call it before each sleep.
//
// The power may fail during any write or erase. The record under way is lost then, and its space
// stays unused until the block is erased. Every write is read back; blocks that do not keep what is
// written are passed over. A call tries to erase three blocks at most. Then it returns an error,
// and the next call goes on from there. A chip that refuses writes and erases loses no reading
// while it does, except that a full log has given up its oldest one. If it recovers in the middle
// of a call, the readings of the blocks that this call had passed over are lost. A chip that erases
// but takes no writes loses up to three blocks a call.
//
// Wear: a block of E bytes is erased once in blocks * E / (16 + size of a reading) readings, sizes
// rounded up to the chip's write blocks. 16 blocks of 4 KB, which bear 10,000 erases, take readings
// of 40 bytes for 22 years at one a minute.
package flashlog
