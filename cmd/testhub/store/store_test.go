package store

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

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

func record(table, key, value string) hubdata.Record {
	return hubdata.Record{Table: table, Key: key, Value: []byte(value)}
}

// all returns the records of a part.
func all(t *testing.T, p *Part) (got []string) {
	require.NoError(t, p.Load(func(r hubdata.Record) error {
		got = append(got, fmt.Sprintf("%s/%s=%s", r.Table, r.Key, r.Value))
		return nil
	}))
	return got
}

func TestRecordsComeBackInOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	f, err := Open(dir, Options{Sync: true})
	require.NoError(t, err)
	require.Empty(t, all(t, f.Part("hub")))
	require.NoError(t, f.Part("hub").Save([]hubdata.Record{
		record("b", "2", "two"), record("b", "1", "one"), record("a", "", ""), record("c", "x", "y"),
		record("b", "3", "three"),
	}))
	require.NoError(t, f.Part("dps").Save([]hubdata.Record{record("b", "1", "another part")}))
	require.NoError(t, f.Part("hub").Save([]hubdata.Record{
		{Table: "c"}, {Table: "nothing"}, {Table: "b", Key: "3"}, {Table: "b", Key: "none"}, record("c", "z", "after"),
	}))
	require.NoError(t, f.Close())
	f, err = Open(dir, Options{})
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, []string{"a/=", "b/1=one", "b/2=two", "c/z=after"}, all(t, f.Part("hub")))
	require.Equal(t, []string{"b/1=another part"}, all(t, f.Part("dps")))
	own := errors.New("stop")
	require.ErrorIs(t, f.Part("hub").Load(func(hubdata.Record) error { return own }), own)
}

func TestAFileOfANewerVersionIsRefused(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(dir, Options{})
	require.NoError(t, err)
	require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(formatKey, []byte("2")) }))
	require.NoError(t, f.Close())
	before, err := os.ReadFile(f.path)
	require.NoError(t, err)
	_, err = Open(dir, Options{})
	require.ErrorContains(t, err, "has the format 2, this testhub knows formats up to 1")
	after, err := os.ReadFile(f.path)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestAnotherFileOfBoltIsRefused(t *testing.T) {
	dir := t.TempDir()
	db, err := bbolt.Open(filepath.Join(dir, fileName), 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("of others"))
		return err
	}))
	require.NoError(t, db.Close())
	_, err = Open(dir, Options{})
	require.ErrorContains(t, err, "it has no state of testhub")
}

// A kill at the first start leaves a file with nothing in it. The next start goes on.
func TestAStartAfterOneThatWasKilled(t *testing.T) {
	dir := t.TempDir()
	db, err := bbolt.Open(filepath.Join(dir, fileName), 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for range 2 {
		f, err := Open(dir, Options{})
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
}

// A file that another program cuts while it is open is an error, not the end of the process.
func TestAFileThatIsCutWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it does not cut files that are open")
	}
	var failed error
	f, err := Open(t.TempDir(), Options{Failed: func(err error) { failed = err }})
	require.NoError(t, err)
	var many []hubdata.Record
	for i := range 1000 {
		many = append(many, record("t", strconv.Itoa(i), strings.Repeat("v", 100)))
	}
	require.NoError(t, f.Part("hub").Save(many))
	require.NoError(t, os.Truncate(f.path, int64(os.Getpagesize())))
	require.Error(t, f.Part("hub").Save([]hubdata.Record{record("t", "500", "w")}))
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
		f, err := Open(t.TempDir(), Options{})
		require.NoError(t, err)
		require.NoError(t, f.Part("hub").Save([]hubdata.Record{record("t", "k", "v")}))
		require.NoError(t, f.db.Update(func(tx *bbolt.Tx) error {
			return do(tx.Bucket(partsBucket).Bucket([]byte("hub")).Bucket([]byte("t")))
		}))
		err = f.Part("hub").Load(func(hubdata.Record) error { return nil })
		require.ErrorContains(t, err, "damaged", name)
		require.ErrorContains(t, err, "checksum", name)
		require.NoError(t, f.Close())
	}
}

func TestAFailedSaveIsReported(t *testing.T) {
	var failed error
	f, err := Open(t.TempDir(), Options{Failed: func(err error) { failed = err }})
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Error(t, f.Part("hub").Save([]hubdata.Record{record("t", "k", "v")}))
	require.ErrorContains(t, failed, "make room on the disk")
}

// A file with any damage is refused or read; it never ends the process.
func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	file, err := Open(dir, Options{})
	require.NoError(f, err)
	require.NoError(f, file.Part("hub").Save([]hubdata.Record{record("t", "k", "v"), record("u", "k", "w")}))
	require.NoError(f, file.Close())
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
		path := filepath.Join(t.TempDir(), fileName)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		opened, err := Open(filepath.Dir(path), Options{})
		if err != nil {
			require.ErrorContains(t, err, path)
			return
		}
		defer opened.Close()
		opened.Part("hub").Load(func(hubdata.Record) error { return nil }) // an error, or what is left
	})
}
