package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

func stored(table, key, value string) hubdata.Record {
	return hubdata.Record{Table: table, Key: key, Value: []byte(value)}
}

// storedIn returns the records of a part.
func storedIn(t *testing.T, p testbroker.Store) (got []string) {
	require.NoError(t, p.Load(func(r hubdata.Record) error {
		got = append(got, fmt.Sprintf("%s/%s=%s", r.Table, r.Key, r.Value))
		return nil
	}))
	return got
}

// noFailure fails the test when a Save fails.
func noFailure(t testing.TB) func(error) { return func(err error) { t.Error(err) } }

func TestRecordsComeBackInOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	f, err := openState(dir, true, noFailure(t))
	require.NoError(t, err)
	require.Empty(t, storedIn(t, f.part("hub")))
	require.NoError(t, f.part("hub").Save([]hubdata.Record{
		stored("b", "2", "two"), stored("b", "1", "one"), stored("a", "", ""), stored("c", "x", "y"),
		stored("b", "3", "three"),
	}))
	require.NoError(t, f.part("dps").Save([]hubdata.Record{stored("b", "1", "another part")}))
	require.NoError(t, f.part("hub").Save([]hubdata.Record{
		{Table: "c"}, {Table: "nothing"}, {Table: "b", Key: "3"}, {Table: "b", Key: "none"}, stored("c", "z", "after"),
	}))
	require.NoError(t, f.close())
	f, err = openState(dir, false, noFailure(t))
	require.NoError(t, err)
	defer f.close()
	require.Equal(t, []string{"a/=", "b/1=one", "b/2=two", "c/z=after"}, storedIn(t, f.part("hub")))
	require.Equal(t, []string{"b/1=another part"}, storedIn(t, f.part("dps")))
	own := errors.New("stop")
	require.ErrorIs(t, f.part("hub").Load(func(hubdata.Record) error { return own }), own)
}

func TestAFileOfANewerVersionIsRefused(t *testing.T) {
	dir := t.TempDir()
	f, err := openState(dir, false, noFailure(t))
	require.NoError(t, err)
	require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(formatKey, []byte("2")) }))
	require.NoError(t, f.close())
	before, err := os.ReadFile(f.path)
	require.NoError(t, err)
	_, err = openState(dir, false, noFailure(t))
	require.ErrorContains(t, err, "has the format 2, this testhub knows formats up to 1")
	after, err := os.ReadFile(f.path)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestAnotherFileOfBoltIsRefused(t *testing.T) {
	dir := t.TempDir()
	db, err := bbolt.Open(filepath.Join(dir, stateFile), 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("of others"))
		return err
	}))
	require.NoError(t, db.Close())
	_, err = openState(dir, false, noFailure(t))
	require.ErrorContains(t, err, "it has no state of testhub")
}

// A kill at the first start leaves a file with nothing in it. The next start goes on.
func TestAStartAfterOneThatWasKilled(t *testing.T) {
	dir := t.TempDir()
	db, err := bbolt.Open(filepath.Join(dir, stateFile), 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for range 2 {
		f, err := openState(dir, false, noFailure(t))
		require.NoError(t, err)
		require.NoError(t, f.close())
	}
}

// A file that another program cuts while it is open is an error, not the end of the process.
func TestAFileThatIsCutWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it does not cut files that are open")
	}
	var failed error
	f, err := openState(t.TempDir(), false, func(err error) { failed = err })
	require.NoError(t, err)
	var many []hubdata.Record
	for i := range 1000 {
		many = append(many, stored("t", strconv.Itoa(i), strings.Repeat("v", 100)))
	}
	require.NoError(t, f.part("hub").Save(many))
	require.NoError(t, os.Truncate(f.path, int64(os.Getpagesize())))
	require.Error(t, f.part("hub").Save([]hubdata.Record{stored("t", "500", "w")}))
	require.Error(t, failed)
}

// A record with a changed byte, or one that moved to another key, is found.
func TestAChangedRecordIsFound(t *testing.T) {
	change := map[string]func(table *bbolt.Bucket) error{
		"value": func(b *bbolt.Bucket) error {
			return b.Put([]byte("=k"), seal([]byte("t"), []byte("=other"), []byte("v")))
		},
		"short": func(b *bbolt.Bucket) error { return b.Put([]byte("=k"), []byte{1, 2}) },
		"bit": func(b *bbolt.Bucket) error {
			sealed := append([]byte{}, b.Get([]byte("=k"))...)
			sealed[len(sealed)-1] ^= 1
			return b.Put([]byte("=k"), sealed)
		},
	}
	for name, do := range change {
		f, err := openState(t.TempDir(), false, noFailure(t))
		require.NoError(t, err)
		require.NoError(t, f.part("hub").Save([]hubdata.Record{stored("t", "k", "v")}))
		require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error {
			return do(tx.Bucket(partsBucket).Bucket([]byte("hub")).Bucket([]byte("t")))
		}))
		err = f.part("hub").Load(func(hubdata.Record) error { return nil })
		require.ErrorContains(t, err, "damaged", name)
		require.ErrorContains(t, err, "checksum", name)
		require.NoError(t, f.close())
	}
}

func TestAFailedSaveIsReported(t *testing.T) {
	var failed error
	f, err := openState(t.TempDir(), false, func(err error) { failed = err })
	require.NoError(t, err)
	require.NoError(t, f.close())
	require.Error(t, f.part("hub").Save([]hubdata.Record{stored("t", "k", "v")}))
	require.ErrorContains(t, failed, "make room on the disk")
}

// A file with any damage is refused or read; it never ends the process.
func FuzzState(f *testing.F) {
	dir := f.TempDir()
	file, err := openState(dir, false, noFailure(f))
	require.NoError(f, err)
	require.NoError(f, file.part("hub").Save([]hubdata.Record{stored("t", "k", "v"), stored("u", "k", "w")}))
	require.NoError(f, file.close())
	whole, err := os.ReadFile(file.path)
	require.NoError(f, err)
	f.Add(uint32(0), []byte{0xff}, uint32(len(whole)))
	f.Add(uint32(4096*3+20), []byte{0xff, 0xff, 0xff, 0xff}, uint32(len(whole)))
	f.Add(uint32(16), []byte{1, 2, 3}, uint32(5000))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, length uint32) {
		content := append([]byte{}, whole[:min(int(length), len(whole))]...)
		if int(at) < len(content) {
			copy(content[at:], patch)
		}
		path := filepath.Join(t.TempDir(), stateFile)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		opened, err := openState(filepath.Dir(path), false, noFailure(t))
		if err != nil {
			require.ErrorContains(t, err, path)
			return
		}
		defer opened.close()
		opened.part("hub").Load(func(hubdata.Record) error { return nil }) // an error, or what is left
	})
}
