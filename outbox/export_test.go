package outbox

import "os"

var (
	AppendMessage = appendMessage
	ReadMessage   = readMessage
)

// Break closes the file that is written to behind the queue's back: writing and fsync fail.
func (q *Queue) Break() {
	q.mu.Lock()
	defer q.mu.Unlock()
	_ = q.segments[len(q.segments)-1].file.Close()
}

// Unsynced is how many records the disk may not have.
func (q *Queue) Unsynced() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next - q.synced
}

// BreakEmpty is Break on a segment without a record, the first of a new queue.
func (q *Queue) BreakEmpty() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, err := q.writable(0)
	if err == nil {
		err = s.file.Close()
	}
	return err
}

// SetFsync replaces fsync.
func (q *Queue) SetFsync(f func(*os.File) error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fsync = f
}
