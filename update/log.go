package update

// log appends records to one of two areas of the flash. When that is full, the other one is erased
// and takes the next record. So the newest complete record survives every power cut.
type log struct {
	flash  Flash
	first  int64 // the first erase block of the first area; the second one follows
	blocks int64 // erase blocks of an area
	area   int64 // 0 or 1: has the newest record
	at     int64 // where the next record goes in area; negative: the other area is next
}

// newLog returns a log whose next record goes to another area than the newest one: behind that may
// be the remains of a torn record, which look erased and are not.
func newLog(flash Flash, first, blocks int64) log {
	return log{flash: flash, first: first, blocks: blocks, at: -1}
}

// size returns the bytes of an area.
func (l *log) size() int64 { return l.blocks * l.flash.EraseBlockSize() }

// offset returns where an area begins, in bytes.
func (l *log) offset(area int64) int64 { return l.first*l.flash.EraseBlockSize() + area*l.size() }

// read fills p from a place in an area.
func (l *log) read(p []byte, area, at int64) error {
	if _, err := l.flash.ReadAt(p, l.offset(area)+at); err != nil {
		return flashError(err)
	}
	return nil
}

// add makes record, which has whole write blocks, the newest one. After an error it may be complete
// in the flash nevertheless.
func (l *log) add(record []byte) error {
	area, at := l.area, l.at
	l.at = -1
	if at < 0 || at+int64(len(record)) > l.size() {
		area, at = 1-area, 0
		if err := l.flash.EraseBlocks(l.first+area*l.blocks, l.blocks); err != nil {
			return flashError(err)
		}
	}
	if _, err := l.flash.WriteAt(record, l.offset(area)+at); err != nil {
		return flashError(err)
	}
	l.area, l.at = area, at+int64(len(record))
	return nil
}
