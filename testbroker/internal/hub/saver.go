package hub

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// A Table is a part of the hub's state whose records a store keeps.
type Table struct {
	// Name stays the same from version to version.
	Name string
	// Record returns the present record of a key; nil when it is gone. The saver calls it without
	// locks.
	Record func(key string) []byte
	// Restore takes a record of an earlier run, in the order of keys, before the first connection.
	Restore func(key string, record []byte) error
}

// A saver writes changed records to the store. Changes only mark a record as touched. The saver's
// goroutine takes all touched records at once and writes their present content, so the newest state
// wins in any order, and a burst of changes is one write.
type saver struct {
	store  hubdata.Store    // nil: nothing is kept
	tables map[string]Table // complete before the first connection
	wake   chan struct{}    // capacity 1
	cut    chan struct{}    // closed when all connections are cut for good
	fail   func(error)      // cuts all connections for good
	done   chan struct{}    // closed when the goroutine has ended; nil before it has begun

	mu      sync.Mutex // guards the fields below; a leaf: any lock may be held when it is taken
	touched map[recordName]struct{}
	cleared []string      // tables whose records are gone
	next    chan struct{} // closed when the records that are touched now are in the store
	present chan struct{} // the same of the write in progress; nil = none
	ending  bool
	over    bool // cut is closed
}

type recordName struct{ table, key string }

func (s *saver) init(store hubdata.Store, fail func(error)) {
	s.store, s.tables, s.cut, s.fail = store, make(map[string]Table), make(chan struct{}), fail
	s.wake = make(chan struct{}, 1)
	s.touched, s.next = make(map[recordName]struct{}), make(chan struct{})
}

// AddTable adds a table. It is called before Restore.
func (h *Hub) AddTable(t Table) { h.saver.tables[t.Name] = t }

// Restore takes the records of an earlier run from the store, and starts the saver. It is called
// once, after the last AddTable and before the first connection. The caller closes the hub if it
// fails.
func (h *Hub) Restore() error {
	s := &h.saver
	if s.store == nil {
		return nil
	}
	err := s.store.Load(func(r hubdata.Record) error {
		t, ok := s.tables[r.Table]
		if !ok {
			return fmt.Errorf("the table %q is unknown; a newer version wrote it", r.Table)
		}
		if err := t.Restore(r.Key, r.Value); err != nil {
			return fmt.Errorf("record %q of the table %q: %w", r.Key, r.Table, err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("testbroker: Options.Store: %w", err)
	}
	for _, q := range h.queuesOf("", Boxes[:]...) {
		q.dispatch() // sets the timer of expiries
	}
	h.Notices(Feedback).Kick() // the same
	h.Touch(tableAccount, "")  // the first run has made the key
	h.reconfigure()
	s.done = make(chan struct{})
	go h.saver.run()
	return nil
}

// Touch marks a record as changed. It does not block, and the caller may hold any lock.
func (h *Hub) Touch(table, key string) { h.saver.touch(table, key) }

// Save is Touch and Saved.
func (h *Hub) Save(table, key string) {
	h.saver.touch(table, key)
	h.saver.wait()
}

// Saved waits until every record that the caller has touched is in the store. The caller holds no
// lock of the hub.
func (h *Hub) Saved() { h.saver.wait() }

// Stores reports whether the hub has a store, so that Saved may wait.
func (h *Hub) Stores() bool { return h.saver.store != nil }

// ClearTables marks all records of tables as gone, in one write: some make no sense without the
// others. It does not block, and the caller may hold any lock.
func (h *Hub) ClearTables(tables ...string) { h.saver.clear(tables) }

func (s *saver) touch(table, key string) {
	if s.store == nil {
		return
	}
	s.mu.Lock()
	s.touched[recordName{table, key}] = struct{}{}
	s.mu.Unlock()
	s.stir()
}

func (s *saver) clear(tables []string) {
	if s.store == nil {
		return
	}
	s.mu.Lock()
	s.cleared = append(s.cleared, tables...)
	for name := range s.touched {
		if slices.Contains(tables, name.table) {
			delete(s.touched, name)
		}
	}
	s.mu.Unlock()
	s.stir()
}

func (s *saver) stir() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake already
	}
}

// wait waits for the write that takes the records touched so far. It gives up when the hub has cut
// all connections, because then nobody gets an acknowledgement.
func (s *saver) wait() {
	if s.store == nil {
		return
	}
	s.mu.Lock()
	in := s.present
	if len(s.touched)+len(s.cleared) > 0 {
		in = s.next
	}
	s.mu.Unlock()
	if in == nil {
		return
	}
	select {
	case <-in:
	case <-s.cut:
	}
}

// run is the saver's goroutine. It ends after the last write of end, or with an error of the store.
func (s *saver) run() {
	defer close(s.done)
	for range s.wake {
		ok, ending := s.write()
		if !ok || ending {
			return
		}
	}
}

// release ends all waits, present and future. It is called when all connections are cut for good.
func (s *saver) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.over = true
		close(s.cut)
	}
}

// write writes what is touched. ok is false after an error of the store.
func (s *saver) write() (ok, ending bool) {
	s.mu.Lock()
	touched, cleared, end := s.touched, s.cleared, s.next
	ending = s.ending
	s.touched, s.cleared, s.next = make(map[recordName]struct{}), nil, make(chan struct{})
	s.present = end
	s.mu.Unlock()
	if changes := s.changes(cleared, touched); len(changes) > 0 {
		if err := s.store.Save(changes); err != nil {
			s.fail(fmt.Errorf("%w: %w", ErrStore, err))
			return false, ending
		}
	}
	close(end)
	s.mu.Lock()
	s.present = nil
	s.mu.Unlock()
	return true, ending
}

// changes returns the changes of tables and records, in a fixed order.
func (s *saver) changes(cleared []string, touched map[recordName]struct{}) []hubdata.Record {
	var all []hubdata.Record
	for _, table := range cleared {
		all = append(all, hubdata.Record{Table: table})
	}
	first := len(all)
	for name := range touched {
		if t, ok := s.tables[name.table]; ok {
			all = append(all, hubdata.Record{Table: name.table, Key: name.key, Value: t.Record(name.key)})
		}
	}
	slices.SortFunc(all[first:], func(a, b hubdata.Record) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Key, b.Key))
	})
	return all
}

// end writes what is touched and ends the goroutine. Close calls it when all other goroutines have
// ended.
func (s *saver) end() {
	if s.done == nil {
		return
	}
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	s.stir()
	<-s.done
}

// storeFailed cuts all connections and refuses new ones, so that nobody gets an acknowledgement of
// something that is not in the store.
func (h *Hub) storeFailed(err error) {
	h.mu.Lock()
	h.unsaved = true
	open := h.connsLocked("")
	h.mu.Unlock()
	for _, c := range open {
		c.CutFor(err)
	}
	h.saver.release()
}

// ErrStore is the cause of a connection's end when the hub could not save its state.
var ErrStore = errors.New("state could not be saved")

// errRecord is returned for a record that is not what its table wrote.
var errRecord = errors.New("it is damaged")
