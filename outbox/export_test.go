package outbox

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
