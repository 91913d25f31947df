package outbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hubline-iot/hubline/transport"
)

// span is a range of record numbers, to excluded.
type span struct{ from, to uint64 }

// overlap returns how many numbers two ranges share.
func (s span) overlap(o span) uint64 {
	from, to := max(s.from, o.from), min(s.to, o.to)
	if from >= to {
		return 0
	}
	return to - from
}

// load locks the folder and reads it.
func (q *Queue) load() (err error) {
	if err := makeFolder(q.fs, q.folder); err != nil {
		return err
	}
	if q.lock, err = q.fs.Open(filepath.Join(q.folder, "lock"), os.O_CREATE|os.O_RDWR); err != nil {
		return err
	}
	switch err := q.fs.Lock(q.lock); {
	case errors.Is(err, errNoLock):
		return &transport.Error{Kind: transport.Unsupported, Op: transport.OpSend, Err: err}
	case err != nil:
		return invalid("another Queue has the folder " + q.folder + ", or no lock is to be had there (" + err.Error() +
			"); close that one, or give each its own")
	}
	if q.mark, q.marked, err = openMark(q.fs, filepath.Join(q.folder, "done")); err != nil {
		return err
	}
	q.done, q.next = q.marked.done, q.marked.done
	entries, err := q.fs.List(q.folder)
	if err != nil {
		return err
	}
	var readable, junk []found
	for _, e := range entries {
		first, salt, ok := parseName(e.Name)
		if !ok {
			continue
		}
		path := filepath.Join(q.folder, e.Name)
		if !e.Regular {
			return fmt.Errorf("%s: %w", path, errNotRegular)
		}
		f, err := q.readSegment(&segment{path: path, salt: salt, first: first, next: first, synced: first, named: true})
		if errors.Is(err, errFormat) {
			return &transport.Error{Kind: transport.Unsupported, Op: transport.OpSend,
				Err: fmt.Errorf("%s: %w", path, err)}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if f.messages > 0 {
			readable = append(readable, f)
			continue
		}
		if f.fileSize > 0 {
			junk = append(junk, f)
		}
		if err := q.putAway(f); err != nil {
			return err
		}
	}
	q.arrange(readable, junk)
	if err := q.mark.repair(progress{q.done, q.known}); err != nil {
		return err
	}
	if q.opt.SyncEvery < 0 {
		return nil
	}
	return q.fs.SyncFolder(q.folder) // a killed process may not have synced it
}

// found is a segment that Open has read.
type found struct {
	*segment
	messages   int
	fileSize   int64
	holes      []span // numbers of damaged records
	unreadable bool   // some sectors could not be read
}

// tail returns the minimum number of messages lost in the unreadable end of the file.
func (f found) tail() uint64 {
	if f.fileSize > f.size {
		return 1
	}
	return 0
}

// mostRead is the offset at which Open stops reading a file, which may be a foreign sparse file.
// Segments are smaller.
const mostRead = 16 * mostSegment

// readSegment reads a segment and syncs it.
func (q *Queue) readSegment(s *segment) (found, error) {
	f := found{segment: s}
	in, err := q.fs.Open(s.path, os.O_RDWR)
	if err != nil {
		return f, err
	}
	defer in.Close()
	if f.fileSize, err = in.Size(); err != nil {
		return f, err
	}
	sc := scanner{file: in, salt: s.salt, next: s.first, limit: min(f.fileSize, mostRead)}
	for {
		number, message, err := sc.read()
		if errors.Is(err, errEnd) {
			break
		}
		if err != nil {
			return f, err
		}
		if message != nil && number >= q.done && !hasKnownFormat(message) {
			return f, errFormat // nothing is skipped: a program that knows the format can send it
		}
		lost := span{s.next, number}
		s.next, s.size = number+1, sc.at
		if message == nil {
			lost.to = s.next
		} else {
			f.messages++
		}
		if lost.from < lost.to {
			f.holes = append(f.holes, lost)
		}
	}
	f.unreadable = sc.unreadable
	if q.opt.SyncEvery < 0 || f.messages == 0 {
		return f, nil
	}
	// A killed process may have left records in the system's cache.
	if err := in.Sync(); err != nil {
		q.stats.SyncErrors++
	} else {
		s.synced = s.next
	}
	return f, nil
}

// putAway deletes a segment without a readable message. It keeps the segment for inspection if it
// is larger than one message that was being written, or has unreadable sectors.
func (q *Queue) putAway(f found) error {
	if f.unreadable || f.fileSize > recordHead+maxMessage {
		return q.fs.Rename(f.path, f.path+damaged)
	}
	return q.fs.Remove(f.path)
}

const damaged = ".damaged"

// arrange makes the readable segments those of the queue, and counts missing messages: gaps in the
// numbers, also before the first file and behind the last one by what the mark says, unreadable
// ends, whose messages have no known number, and ends with the numbers of the next segment, from a
// sector that recovered or from another folder.
func (q *Queue) arrange(readable, junk []found) {
	ended := uint64(0)  // messages behind the last readable one, if the mark does not know of them
	hidden := uint64(0) // messages whose numbers the next segment has, too
	for i, f := range readable {
		next := max(f.next, q.marked.known)
		if i+1 < len(readable) {
			next = readable[i+1].first
			hidden += span{next, f.next}.overlap(span{q.done, f.next})
		} else {
			ended = f.tail()
		}
		// What was behind the readable records and before the next segment is gone.
		for _, h := range append(f.holes, span{f.next, next}) {
			q.holes = append(q.holes, span{h.from, min(h.to, next)})
		}
		q.next = max(q.next, min(f.next, next))
		f.next = next
	}
	if len(readable) == 0 && len(junk) > 0 {
		q.next = max(q.next, junk[0].first)
	}
	for _, f := range junk {
		if f.first >= q.next {
			ended = f.first - q.next + max(f.next-f.first, 1)
		}
	}
	first := q.next
	if len(readable) > 0 {
		first = readable[0].first
	}
	begin := first // without a mark, messages before the first file count as done
	if len(junk) > 0 {
		begin = min(begin, junk[0].first)
	}
	if q.mark.found() {
		begin = min(begin, q.done)
	}
	q.holes = append(q.holes, span{begin, first})
	q.done = max(q.done, begin)
	q.known = max(q.next, q.marked.known, q.done)
	ended -= min(ended, q.known-q.next)
	if len(readable) == 0 {
		q.holes = append(q.holes, span{q.next, q.known})
	}
	q.next = q.known
	q.stats.Damaged = q.holesIn(q.done, q.next) + ended + hidden
	if len(readable) == 0 {
		q.done = q.next // nothing is left
	}
	for _, f := range readable {
		q.segments = append(q.segments, f.segment)
		q.bytes += f.size
	}
}

// holesIn returns how many numbers in the range are known to be missing.
func (q *Queue) holesIn(from, to uint64) (n uint64) {
	for _, h := range q.holes {
		n += h.overlap(span{from, to})
	}
	return n
}
