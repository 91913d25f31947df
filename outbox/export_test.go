package outbox

// For tests in package outbox_test.
type (
	FileSystem = fileSystem
	File       = file
	Entry      = entry
)

// OS is the real file system.
var OS FileSystem = osFS{}

var (
	AppendMessage = appendMessage
	ReadMessage   = readMessage
	OpenOn        = openOn
	ParseName     = parseName
	SegmentName   = segmentName
	AppendRecord  = appendRecord
	SealRecord    = sealRecord
	ErrNoLock     = errNoLock
)

const (
	RecordHead = recordHead
	LookEvery  = lookEvery
)

// Unsynced returns how many records may not be durable.
func (q *Queue) Unsynced() (n uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.segments {
		n += s.next - s.synced
	}
	return n
}

// Stopped reports whether the last Run has ended and none has begun since.
func (q *Queue) Stopped() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stop != nil
}

// Idle waits until the writer and the syncer have ended.
func (q *Queue) Idle() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.working || q.syncing {
		if q.working {
			worked := waitFor(&q.worked)
			q.mu.Unlock()
			<-worked
			q.mu.Lock()
			continue
		}
		synced := waitFor(&q.synced)
		q.mu.Unlock()
		<-synced
		q.mu.Lock()
	}
}

// ErrDamaged is the result of a record that cannot be read.
var ErrDamaged = errDamaged
