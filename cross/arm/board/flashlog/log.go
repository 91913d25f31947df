package flashlog

import "errors"

// Device is flash memory: TinyGo's machine.Flash, or a chip's driver.
type Device interface {
	// ReadAt reads len(p) bytes.
	ReadAt(p []byte, off int64) (n int, err error)
	// WriteAt writes len(p) bytes, which are erased. off and len(p) are multiples of WriteBlockSize.
	WriteAt(p []byte, off int64) (n int, err error)
	// EraseBlocks erases blocks of EraseBlockSize, from the block number start.
	EraseBlocks(start, length int64) error
	WriteBlockSize() int64
	EraseBlockSize() int64
	Size() int64
}

// Options are the optional settings of a Log.
type Options struct {
	// First is the number of the first erase block that the log uses, default 0; Blocks is their
	// count, default all from there on. There must be 2 or more. Other values than before mean
	// another log.
	First, Blocks int
	// MaxBody is the size of the largest reading in bytes, up to 512. Default 128. Use the SlotSize of
	// the firmware. Larger readings of an earlier firmware are not loaded.
	MaxBody int
	// MaxPending is how many readings the log keeps until the hub has them, 1 to 4096; the oldest give
	// way. Default 64. Use the Slots of the firmware, or more. Each takes 4 bytes of RAM.
	MaxPending int
}

// Log is a board.Store in flash. It is not safe for concurrent use. It allocates nothing after New.
type Log struct {
	dev     Device
	first   int64 // number of the first erase block
	blocks  int
	block   int64 // size of an erase block
	write   int   // size of a write block
	maxBody int

	buf     []byte   // of one record
	part    [32]byte // of what is read back
	pending []uint32 // numbers not forgotten, in order; the capacity never changes
	last    uint32   // highest number kept
	noted   uint32   // first of the latest record: what the flash says is forgotten

	active int   // the block with the latest record
	end    int64 // offset in it of the next record; block: it is full
	failed int   // how many blocks after it could not be erased, modulo blocks - 1

	dropped uint32
}

const (
	erased       = 0xff
	maxWrite     = 1 << 10
	maxBodyLimit = 512
	maxPending   = 1 << 12
	maxErases    = 3 // of one append
)

var (
	errBlocks  = errors.New("flashlog: Options.First or Blocks is out of range; give 2 erase blocks or more of the device")
	errDevice  = errors.New("flashlog: the device's write or erase blocks have a size that the log cannot use")
	errMaxBody = errors.New("flashlog: Options.MaxBody is out of range; give 1 to 512, less than an erase block")
	errPending = errors.New("flashlog: Options.MaxPending is out of range; give 1 to 4096")

	errTooLong = errors.New("flashlog: the reading is longer than Options.MaxBody")
	errNumber  = errors.New("flashlog: the reading's number is not above all before")
	errWorn    = errors.New("flashlog: no block keeps what is written; the flash is worn out or refuses writes")
)

// New finds the log on a device; o may be nil. It only reads. The error names an invalid option, or
// is the device's.
func New(d Device, o *Options) (*Log, error) {
	var opt Options
	if o != nil {
		opt = *o
	}
	if opt.MaxBody == 0 {
		opt.MaxBody = 128
	}
	if opt.MaxPending == 0 {
		opt.MaxPending = 64
	}
	block, write := d.EraseBlockSize(), d.WriteBlockSize()
	if block <= 0 || write <= 0 || write > maxWrite || block%write != 0 || block > 1<<30 {
		return nil, errDevice
	}
	available := d.Size() / block
	if opt.First < 0 || int64(opt.First) >= available {
		return nil, errBlocks
	}
	if opt.Blocks == 0 {
		opt.Blocks = int(min(available-int64(opt.First), 1<<20))
	}
	if opt.Blocks < 2 || int64(opt.Blocks) > available-int64(opt.First) {
		return nil, errBlocks
	}
	if opt.MaxPending < 1 || opt.MaxPending > maxPending {
		return nil, errPending
	}
	l := &Log{dev: d, first: int64(opt.First), blocks: opt.Blocks, block: block, write: int(write), maxBody: opt.MaxBody}
	if opt.MaxBody < 1 || opt.MaxBody > maxBodyLimit || int64(l.size(opt.MaxBody)) > block {
		return nil, errMaxBody
	}
	l.buf = make([]byte, l.size(opt.MaxBody))
	l.pending = make([]uint32, 0, opt.MaxPending)
	if err := l.find(); err != nil {
		return nil, err
	}
	return l, nil
}

// size returns what a record with such a body occupies.
func (l *Log) size(body int) int {
	return (headerSize + body + l.write - 1) / l.write * l.write
}

// Dropped returns how many readings gave way before they were forgotten, since New: there were more
// than MaxPending, or the log came round to them.
func (l *Log) Dropped() uint32 { return l.dropped }

// Keep stores a reading with one write. It implements board.Store.
func (l *Log) Keep(number uint32, body []byte) error {
	switch {
	case len(body) > l.maxBody:
		return errTooLong
	case number <= l.last:
		return errNumber
	}
	if len(l.pending) == cap(l.pending) {
		l.drop(1)
	}
	l.pending = append(l.pending, number)
	if err := l.append(kindReading, number, body); err != nil {
		l.Forget(number)
		return err
	}
	l.last = number
	return nil
}

// Forget removes a reading. It writes nothing: the next record says so. It implements board.Store.
func (l *Log) Forget(number uint32) error {
	for i, n := range l.pending {
		if n == number {
			l.pending = append(l.pending[:i], l.pending[i+1:]...)
			break
		}
	}
	return nil
}

// Sync writes which readings are forgotten, unless the flash says so. Without it they are sent
// again after a reset, up to those before the latest Keep.
func (l *Log) Sync() error {
	if l.noted == l.low(l.last) {
		return nil
	}
	return l.append(kindMark, l.last, nil)
}

// low returns the lowest number that is not forgotten; last is the highest one kept.
func (l *Log) low(last uint32) uint32 {
	if len(l.pending) > 0 {
		return l.pending[0]
	}
	return last + 1
}

// drop forgets the n oldest readings.
func (l *Log) drop(n int) {
	l.dropped += uint32(n)
	l.pending = append(l.pending[:0], l.pending[n:]...)
}

// append writes a record, in the next block if there is no space. After a failed write it tries the
// space behind it, once, and then the next block. It tries to erase maxErases blocks at most: the
// chip may refuse all writes and erases for a moment, and the log must then keep its readings.
func (l *Log) append(kind uint16, number uint32, body []byte) error {
	size := l.size(len(body))
	for i := range min(maxErases+1, l.blocks) {
		if i > 0 && !l.advance(i == 1) {
			continue
		}
		for try := 0; try < 2 && l.end+int64(size) <= l.block; try++ {
			r := record{number: number, first: l.low(number), kind: kind}
			b := r.encode(l.buf, body, size)
			off := l.offset(l.active) + l.end
			l.end += int64(size) // never written twice
			if _, err := l.dev.WriteAt(b, off); err == nil && l.reads(b, off) {
				l.noted = r.first
				return nil
			}
		}
	}
	return errWorn
}

// advance erases the next block and makes it the active one. Its pending readings give way. It
// reports whether the block was erased; if not, the active block and the readings stay. After
// failures it tries later blocks. The first try of a call is the next block again: an erase of a
// later block costs the readings of all blocks before it.
func (l *Log) advance(first bool) bool {
	step := 1
	if !first {
		step += l.failed
	}
	next := (l.active + step) % l.blocks
	// Later blocks have higher numbers, so all readings up to the highest one here are lost.
	highest := uint32(0)
	_, err := l.scan(next, func(r record, _ []byte) { highest = max(highest, r.number) })
	if err == nil {
		err = l.dev.EraseBlocks(l.first+int64(next), 1)
	}
	left := int64(0)
	if err == nil { // a chip may ignore an erase; single bits that stay are left to the check of each write
		left, err = l.scan(next, func(record, []byte) {})
	}
	if err != nil || left > 0 {
		if !first || l.failed == 0 {
			l.failed = (l.failed + 1) % (l.blocks - 1) // never the active block
		}
		return false
	}
	n := 0
	for n < len(l.pending) && l.pending[n] <= highest {
		n++
	}
	l.drop(n)
	l.active, l.end, l.failed = next, 0, 0
	return true
}

// offset returns where a block of the log begins on the device.
func (l *Log) offset(block int) int64 { return (l.first + int64(block)) * l.block }

// reads reports whether the device has b at off.
func (l *Log) reads(b []byte, off int64) bool {
	for len(b) > 0 {
		p := l.part[:min(len(l.part), len(b))]
		if _, err := l.dev.ReadAt(p, off); err != nil || string(p) != string(b[:len(p)]) {
			return false
		}
		b, off = b[len(p):], off+int64(len(p))
	}
	return true
}
