package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

const (
	stateFile = "testhub.db"
	// stateFormat is the version of the layout of records. A file of a higher one is refused.
	stateFormat = 1
	// stateLock is how long openState waits for another process that is ending.
	stateLock = 200 * time.Millisecond
)

// The names at the top of the file.
var (
	metaBucket  = []byte("testhub")
	formatKey   = []byte("format")
	partsBucket = []byte("parts")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A state is the open state of testhub, a file of bbolt. Other processes cannot open it.
//
// It has parts, one for each hub and one for each service. A part has tables of records. Each
// record carries a checksum, so damage to the file is an error, never a different state.
type state struct {
	db     *bbolt.DB
	path   string
	failed func(error)
}

// openState opens the file in a directory, and makes both if they are not there. Only the user can
// read them. It fails if another process has the file open, if it is damaged, and if a newer
// version has written it. A damaged file may stay locked until the process ends.
//
// sync makes each Save wait until the disk has the data, so that it also survives the end of the
// machine. Without it, it survives the end of the process. failed is called with each error of a
// Save. It must not block.
func openState(dir string, sync bool, failed func(error)) (*state, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w; give a directory that can be written to", err)
	}
	s := &state{path: filepath.Join(dir, stateFile), failed: failed}
	info, err := os.Stat(s.path)
	fresh := errors.Is(err, os.ErrNotExist)
	if err == nil && info.Size() == 0 {
		return nil, s.damaged(errors.New("it is empty"))
	}
	if err := guardFile(func() error { return s.open(sync) }); err != nil {
		return nil, s.explain(dir, err)
	}
	if err := s.guard(func() error { return s.checkFormat(fresh) }); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	return s, nil
}

func (s *state) open(sync bool) error {
	db, err := bbolt.Open(s.path, 0o600, &bbolt.Options{
		Timeout: stateLock, NoSync: !sync, NoGrowSync: !sync, FreelistType: bbolt.FreelistMapType,
	})
	s.db = db
	return err
}

// explain makes of an error of bbolt one that says what to do.
func (s *state) explain(dir string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%s is in use by another testhub; end that one, or give another directory", dir)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w; give a directory of files that can be written to", err)
	}
	return s.damaged(err)
}

// checkFormat reads the format of a file, and writes that of a fresh one: a file that was not
// there, or one whose first start was killed before it wrote anything.
func (s *state) checkFormat(fresh bool) error {
	if !fresh {
		if err := s.db.View(func(tx *bbolt.Tx) error {
			name, _ := tx.Cursor().First()
			fresh = name == nil
			return nil
		}); err != nil {
			return err
		}
	}
	if fresh {
		return s.db.Update(func(tx *bbolt.Tx) error {
			meta, err := tx.CreateBucketIfNotExists(metaBucket)
			if err == nil {
				err = meta.Put(formatKey, []byte(strconv.Itoa(stateFormat)))
			}
			if err == nil {
				_, err = tx.CreateBucketIfNotExists(partsBucket)
			}
			return err
		})
	}
	return s.db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(metaBucket)
		if meta == nil {
			return s.damaged(errors.New("it has no state of testhub"))
		}
		n, err := strconv.Atoi(string(meta.Get(formatKey)))
		switch {
		case err != nil || n < 1 || tx.Bucket(partsBucket) == nil:
			return s.damaged(errors.New("it has no format"))
		case n > stateFormat:
			return fmt.Errorf("%s has the format %d, this testhub knows formats up to %d; use the newer testhub, or another "+
				"directory", s.path, n, stateFormat)
		}
		return nil
	})
}

func (s *state) damaged(err error) error {
	return fmt.Errorf("%s is damaged: %w; restore it from a copy, or move it away to start without state", s.path, err)
}

// close writes everything to the disk and closes the file. The hubs are closed already. A nil state
// has no file.
func (s *state) close() error {
	if s == nil {
		return nil
	}
	if err := errors.Join(s.db.Sync(), s.db.Close()); err != nil {
		return fmt.Errorf("flag -state: %w", err)
	}
	return nil
}

// part returns the store of a hub or of a service; nil without a state.
func (s *state) part(name string) testbroker.Store {
	if s == nil {
		return nil
	}
	return &statePart{s, []byte(name)}
}

// A statePart is the state of one hub or service.
type statePart struct {
	file *state
	name []byte
}

// Load implements testbroker.Store.
func (p *statePart) Load(each func(hubdata.Record) error) error {
	return p.file.guard(func() error {
		return p.file.db.View(func(tx *bbolt.Tx) error {
			part := tx.Bucket(partsBucket).Bucket(p.name)
			if part == nil {
				return nil
			}
			return part.ForEachBucket(func(table []byte) error {
				return part.Bucket(table).ForEach(func(key, value []byte) error {
					record, ok := unseal(table, key, value)
					if !ok {
						return p.file.damaged(fmt.Errorf("record %q of %s has a wrong checksum", key, table))
					}
					return each(hubdata.Record{Table: string(table), Key: string(key[1:]), Value: record})
				})
			})
		})
	})
}

// Save implements testbroker.Store.
func (p *statePart) Save(changes []hubdata.Record) error {
	err := p.file.guard(func() error {
		return p.file.db.Update(func(tx *bbolt.Tx) error {
			part, err := tx.Bucket(partsBucket).CreateBucketIfNotExists(p.name)
			if err != nil {
				return err
			}
			for _, r := range changes {
				if err := saveRecord(part, r); err != nil {
					return fmt.Errorf("%s: %w", r.Table, err)
				}
			}
			return nil
		})
	})
	if err != nil {
		p.file.failed(fmt.Errorf("%s: %w; make room on the disk, and start again", p.file.path, err))
	}
	return err
}

// keyOf returns the key of a record in the file, where keys must not be empty.
func keyOf(r hubdata.Record) []byte { return append([]byte{'='}, r.Key...) }

// saveRecord applies one change. A change without a key and without a value removes the table.
func saveRecord(part *bbolt.Bucket, r hubdata.Record) error {
	name := []byte(r.Table)
	if r.Value == nil && r.Key == "" {
		if part.Bucket(name) == nil {
			return nil
		}
		return part.DeleteBucket(name)
	}
	table, err := part.CreateBucketIfNotExists(name)
	if err != nil {
		return err
	}
	key := keyOf(r)
	if r.Value == nil {
		return table.Delete(key)
	}
	return table.Put(key, seal(name, key, r.Value))
}

// seal puts a checksum over the names and the value before the value.
func seal(table, key, value []byte) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(value)), sum(table, key, value)), value...)
}

// unseal returns a copy of the value; false if the checksum is wrong.
func unseal(table, key, sealed []byte) ([]byte, bool) {
	if len(key) == 0 || len(sealed) < 4 || binary.BigEndian.Uint32(sealed) != sum(table, key, sealed[4:]) {
		return nil, false
	}
	return append([]byte{}, sealed[4:]...), true
}

func sum(table, key, value []byte) uint32 {
	n := crc32.Update(0, castagnoli, table)
	n = crc32.Update(n, castagnoli, append([]byte{0}, key...))
	n = crc32.Update(n, castagnoli, []byte{0})
	return crc32.Update(n, castagnoli, value)
}

// errPanic is the error of a damaged file that bbolt did not recognize as such.
var errPanic = errors.New("its pages make no sense")

// guard is guardFile for a file that is open.
func (s *state) guard(do func() error) error {
	err := guardFile(do)
	if errors.Is(err, errPanic) {
		return s.damaged(err)
	}
	return err
}

// guardFile calls do, which reads the file. bbolt panics on pages that make no sense, and reads of
// a file that is too short are faults of memory.
func guardFile(do func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(before)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errPanic, p)
		}
	}()
	return do()
}
