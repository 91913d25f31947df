package keep

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// A table is a part of the hub's state whose records a store keeps.
type table struct {
	record  func(key string) []byte
	restore func(key string, record []byte) error
}

// A Saver writes changed records to the store. Changes only mark a record as touched. The saver's
// goroutine takes all touched records at once and writes their present content, so the newest state
// wins in any order, and a burst of changes is one write.
type Saver struct {
	store  hubdata.Store    // nil: nothing is kept
	tables map[string]table // complete before the first connection
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

// Init sets the store, which may be nil, and what is done when it fails.
func (s *Saver) Init(store hubdata.Store, fail func(error)) {
	s.store, s.tables, s.cut, s.fail = store, make(map[string]table), make(chan struct{}), fail
	s.wake = make(chan struct{}, 1)
	s.touched, s.next = make(map[recordName]struct{}), make(chan struct{})
}

// Add adds a table, before Load. Its name stays the same from version to version. record returns
// the present record of a key, nil when it is gone; it is called without locks. restore takes a
// record of an earlier run, in the order of keys, before the first connection.
func (s *Saver) Add(name string, record func(key string) []byte, restore func(key string, record []byte) error) {
	s.tables[name] = table{record, restore}
}

// Decoded returns the function for [Saver.Add] that restores records in JSON.
func Decoded[T any](restore func(key string, r T) error) func(key string, record []byte) error {
	return func(key string, record []byte) error {
		var r T
		if err := json.Unmarshal(record, &r); err != nil {
			return err
		}
		return restore(key, r)
	}
}

// Load takes the records of an earlier run from the store. It is called once, after the last Add.
func (s *Saver) Load() error {
	if s.store == nil {
		return nil
	}
	err := s.store.Load(func(r hubdata.Record) error {
		t, ok := s.tables[r.Table]
		if !ok {
			return fmt.Errorf("the table %q is unknown; a newer version wrote it", r.Table)
		}
		if err := t.restore(r.Key, r.Value); err != nil {
			return fmt.Errorf("record %q of the table %q: %w", r.Key, r.Table, err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("testbroker: Options.Store: %w", err)
	}
	return nil
}

// Start begins to save changes, after Load.
func (s *Saver) Start() {
	if s.store != nil {
		s.done = make(chan struct{})
		go s.run()
	}
}

// Stores reports whether there is a store, so that Saved may wait.
func (s *Saver) Stores() bool { return s.store != nil }

// Save is Touch and Saved.
func (s *Saver) Save(table, key string) {
	s.Touch(table, key)
	s.Saved()
}

// Touch marks a record as changed. It does not block, and the caller may hold any lock.
func (s *Saver) Touch(table, key string) {
	if s.store == nil {
		return
	}
	s.mu.Lock()
	s.touched[recordName{table, key}] = struct{}{}
	s.mu.Unlock()
	s.stir()
}

// Clear marks all records of tables as gone, in one write: some make no sense without the others.
// It does not block, and the caller may hold any lock.
func (s *Saver) Clear(tables ...string) {
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

func (s *Saver) stir() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake already
	}
}

// Saved waits until every record that the caller has touched is in the store. It gives up when the
// hub has cut all connections, because then nobody gets an acknowledgement. The caller holds no
// lock of the hub.
func (s *Saver) Saved() {
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

// run is the saver's goroutine. It ends after the last write of End, or with an error of the store.
func (s *Saver) run() {
	defer close(s.done)
	for range s.wake {
		ok, ending := s.write()
		if !ok || ending {
			return
		}
	}
}

// Release ends all waits, present and future. It is called when all connections are cut for good.
func (s *Saver) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.over = true
		close(s.cut)
	}
}

// write writes what is touched. ok is false after an error of the store.
func (s *Saver) write() (ok, ending bool) {
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
func (s *Saver) changes(cleared []string, touched map[recordName]struct{}) []hubdata.Record {
	var all []hubdata.Record
	for _, table := range cleared {
		all = append(all, hubdata.Record{Table: table})
	}
	first := len(all)
	values := make(map[recordName][]byte, len(touched))
	for name := range touched {
		if t, ok := s.tables[name.table]; ok {
			values[name] = t.record(name.key)
		}
	}
	for _, name := range s.successors(values) {
		if t, ok := s.tables[name.table]; ok {
			if value := t.record(name.key); value != nil {
				values[name] = value
			}
		}
	}
	for name, value := range values {
		all = append(all, hubdata.Record{Table: name.table, Key: name.key, Value: value})
	}
	slices.SortFunc(all[first:], func(a, b hubdata.Record) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Key, b.Key))
	})
	return all
}

// successors returns the records of the next write if one of values is gone because of a change
// that belongs to that write. Its successor may be among them, and a kill between the writes must
// not lose both. It returns none of a write that clears tables, which must stay whole.
func (s *Saver) successors(values map[recordName][]byte) []recordName {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.cleared) > 0 {
		return nil
	}
	for name, value := range values {
		if _, again := s.touched[name]; again && value == nil {
			return slices.Collect(maps.Keys(s.touched))
		}
	}
	return nil
}

// End writes what is touched and ends the goroutine. Close calls it when all other goroutines have
// ended.
func (s *Saver) End() {
	if s.done == nil {
		return
	}
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	s.stir()
	<-s.done
}

// ErrStore is the cause of a connection's end when the hub could not save its state.
var ErrStore = errors.New("state could not be saved")

// ErrRecord is returned for a record that is not what its table wrote.
var ErrRecord = errors.New("it is damaged")

// MustJSON encodes a value that always can be.
func MustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// Key returns a number as a key that sorts like the number.
func Key(n int) string { return fmt.Sprintf("%016x", n) }

// ParseKey returns the number of a key, at least least.
func ParseKey(key string, least int) (int, error) {
	n, err := strconv.ParseInt(key, 16, strconv.IntSize)
	if err != nil || int(n) < least || len(key) != 16 {
		return 0, ErrRecord
	}
	return int(n), nil
}
