package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

// The tables of the storage account: its key, its containers by name, and their files by container
// and name. A store returns files after their containers.
const (
	TableAccount    = "account"
	tableContainers = "containers"
	tableFiles      = "files"
)

// A containerRecord is a container without its files.
type containerRecord struct {
	ETag     string
	Modified time.Time
	Metadata map[string]string `json:",omitempty"`
	Owners   bool              `json:",omitempty"`
}

// A fileRecord is a file without its content, which stands behind it. A record begins with the
// length of this in JSON, in four bytes.
type fileRecord struct {
	hubdata.Blob
	Parts []filePart // in place of Blob.Blocks
}

// A filePart is a block of a file.
type filePart struct {
	ID   string `json:",omitempty"`
	Size int64
}

func (f *Files) addTables() {
	f.records.Add(TableAccount, f.accountRecord, f.restoreAccount)
	f.records.Add(tableContainers, f.Containers.containerRecord, keep.Decoded(f.Containers.restoreContainer))
	f.records.Add(tableFiles, f.Containers.fileRecord, f.Containers.restoreFile)
	f.Containers.touch = f.records.Touch
}

func (f *Files) accountRecord(string) []byte { return keep.MustJSON(f.Uploads.Store.Keys.key[:]) }

func (f *Files) restoreAccount(_ string, record []byte) error {
	var key []byte
	if err := json.Unmarshal(record, &key); err != nil || len(key) != len(f.Uploads.Store.Keys.key) {
		return keep.ErrRecord // the parser's text may have bytes of the key
	}
	copy(f.Uploads.Store.Keys.key[:], key)
	return nil
}

func (c *Containers) containerRecord(name string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.all[name]
	if one == nil {
		return nil
	}
	return keep.MustJSON(containerRecord{one.ETag, one.Modified, one.Metadata, one.owners})
}

func (c *Containers) restoreContainer(name string, r containerRecord) error {
	if !ValidContainerName(name) || name == Container {
		return keep.ErrRecord
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[name] = &BlobContainer{Name: name, ETag: r.ETag, Modified: r.Modified, Metadata: r.Metadata, of: c,
		owners: r.Owners, blobs: make(map[string]*storedBlob)}
	c.tags.pass(r.ETag)
	return nil
}

// fileRecord returns the record of a file. Its content is copied without the lock.
func (c *Containers) fileRecord(key string) []byte {
	container, name, _ := strings.Cut(key, "/")
	one := c.Get(container)
	if one == nil {
		return nil
	}
	file, ok := one.Get(name)
	if !ok {
		return nil
	}
	r := fileRecord{Blob: file}
	r.Blocks = nil
	for _, part := range file.Blocks {
		r.Parts = append(r.Parts, filePart{part.ID, part.Size})
	}
	head := keep.MustJSON(r)
	out := make([]byte, 0, 4+len(head)+int(file.Size))
	out = append(binary.BigEndian.AppendUint32(out, uint32(len(head))), head...)
	for _, part := range file.Blocks {
		out = append(out, part.Content...)
	}
	return out
}

func (c *Containers) restoreFile(key string, record []byte) error {
	container, name, _ := strings.Cut(key, "/")
	r, content, err := parseFile(record)
	if err != nil || r.Name != name || !ValidBlobName(name) || !IsXML(name) {
		return keep.ErrRecord
	}
	file := r.Blob
	for _, p := range r.Parts {
		if p.Size < 0 || p.Size > int64(len(content)) {
			return keep.ErrRecord
		}
		file.Blocks = append(file.Blocks, hubdata.BlobBlock{ID: p.ID, Size: p.Size,
			SHA256: sha256.Sum256(content[:p.Size]), Content: bytes.Clone(content[:p.Size])})
		content = content[p.Size:]
	}
	if len(content) > 0 {
		return keep.ErrRecord
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.all[container]
	if one == nil {
		c.touch(tableFiles, key) // a kill during the removal of its container has left it
		return nil
	}
	b := &storedBlob{staged: make(map[string]hubdata.BlobBlock)}
	b.replace(file, file.ETag)
	b.file.Version = file.Version
	one.blobs[name] = b
	c.blobs++
	c.used += b.cost(name)
	if i, listed := slices.BinarySearch(one.files, name); !listed {
		one.files = slices.Insert(one.files, i, name)
	}
	c.tags.pass(file.ETag)
	return nil
}

func parseFile(record []byte) (r fileRecord, content []byte, err error) {
	if len(record) < 4 {
		return r, nil, keep.ErrRecord
	}
	n, rest := int64(binary.BigEndian.Uint32(record)), record[4:]
	if n > int64(len(rest)) {
		return r, nil, keep.ErrRecord
	}
	err = json.Unmarshal(rest[:n], &r)
	return r, rest[n:], err
}

// pass makes later tags differ from one of an earlier run.
func (t *blobTags) pass(tag string) {
	if n, err := strconv.ParseInt(tag, 0, 64); err == nil && n > t.last.Load() && n < maxTag {
		t.last.Store(n)
	}
}

// maxTag bounds the tags of an earlier run: no hub comes near it.
const maxTag = 1 << 62

func (c *BlobContainer) touchFile(name string) { c.of.touch(tableFiles, c.Name+"/"+name) }
