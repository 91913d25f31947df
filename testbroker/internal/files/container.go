package files

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// The limits of all containers of a hub. A blob and a block count with their size and with what the
// hub keeps about them.
const (
	maxContainers     = 100
	maxContainerBlobs = 10_000
	maxContainerBytes = 256 << 20
	blobOverhead      = 1 << 10
	blockOverhead     = 256
)

// blobTags makes ETags that are unique in a hub.
type blobTags struct{ last atomic.Int64 }

func (t *blobTags) next() string { return fmt.Sprintf("0x%X", t.last.Add(1)) }

// A BlobStore is a container of blobs.
type BlobStore interface {
	Get(name string) (hubdata.Blob, bool)
	// Reserve keeps room for a change of at most n bytes until release.
	Reserve(n int64) (release func(), bad *BlobError)
	Put(file hubdata.Blob, when BlobCheck) (hubdata.Blob, *BlobError)
	Stage(name string, part hubdata.BlobBlock) *BlobError
	Commit(file hubdata.Blob, list []ListedBlock, when BlobCheck) (hubdata.Blob, *BlobError)
	SetMetadata(name string, metadata map[string]string, when BlobCheck) (hubdata.Blob, *BlobError)
	Delete(name string, when BlobCheck) *BlobError
	List(prefix, delimiter, after string, most int) (page []BlobEntry, next string, bad *BlobError)
}

// Containers are containers that share a limit: those of the hub's storage account, or that of the
// uploads.
type Containers struct {
	now   func() time.Time
	tags  *blobTags
	most  int64                   // bytes
	full  *BlobError              // refuses more
	touch func(table, key string) // marks a record as changed; a leaf

	mu       sync.Mutex // guards the fields below, and all containers
	all      map[string]*BlobContainer
	blobs    int   // entries of all containers
	used     int64 // bytes
	reserved int64 // bytes of requests that run
}

// A BlobContainer is a container that a back end has made, or that of the uploads.
type BlobContainer struct {
	Name     string
	ETag     string
	Modified time.Time
	Metadata map[string]string

	of     *Containers
	named  bool // of the uploads: only uploadStore.expect adds entries
	owners bool // the owner of the hub has made it: it survives Hub.Reset
	gone   bool // it was deleted
	blobs  map[string]*storedBlob
	files  []string // names of the blobs that have a file, sorted
}

func (c *Containers) init(now func() time.Time, tags *blobTags, most int64, full *BlobError) {
	c.now, c.tags, c.most, c.full = now, tags, most, full
	c.all, c.touch = make(map[string]*BlobContainer), func(string, string) {}
}

// clear deletes all blobs, and all containers but those that the owner of the hub has made.
func (c *Containers) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		one.emptyLocked()
		if !one.owners {
			one.gone = true
			delete(c.all, one.Name)
			c.touch(tableContainers, one.Name)
		}
	}
}

// containerName is the form of a container's name; $root and the like are not offered.
var containerName = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])*$`)

// ValidContainerName reports whether name is a valid name of a container.
func ValidContainerName(name string) bool {
	return len(name) >= 3 && len(name) <= 63 && containerName.MatchString(name)
}

// Create makes an empty container.
func (c *Containers) Create(name string, metadata map[string]string) (BlobContainer, *BlobError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.all[name] != nil || name == Container:
		return BlobContainer{}, blobContainerExists
	case len(c.all) >= maxContainers:
		return BlobContainer{}, blobStoreFull
	}
	one := &BlobContainer{Name: name, ETag: c.tags.next(), Modified: c.now(), Metadata: metadata, of: c,
		blobs: make(map[string]*storedBlob)}
	c.all[name] = one
	c.touch(tableContainers, name)
	return *one, nil
}

// keep makes a container that survives Hub.Reset, unless there is one.
func (c *Containers) keep(name string) *BlobError {
	_, bad := c.Create(name, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.all[name]; one != nil {
		one.owners, bad = true, nil
		c.touch(tableContainers, name)
	}
	return bad
}

// Get returns a container; nil if there is none of the name.
func (c *Containers) Get(name string) *BlobContainer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[name]
}

// Delete deletes a container and its blobs, if the condition holds.
func (c *Containers) Delete(name string, when func(*BlobContainer) *BlobError) *BlobError {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.all[name]
	if one == nil {
		return BlobNoContainer
	}
	if bad := when(one); bad != nil {
		return bad
	}
	one.emptyLocked()
	one.gone = true
	delete(c.all, name)
	c.touch(tableContainers, name)
	return nil
}

// List returns at most most containers by name, those with a prefix and behind a name.
func (c *Containers) List(prefix, after string, most int) []BlobContainer {
	c.mu.Lock()
	defer c.mu.Unlock()
	var page []BlobContainer
	for _, name := range slices.Sorted(maps.Keys(c.all)) {
		if len(page) < most && name > after && strings.HasPrefix(name, prefix) {
			page = append(page, *c.all[name])
		}
	}
	return page
}

// cost returns the bytes for which an entry counts.
func (b *storedBlob) cost(name string) int64 {
	n := int64(blobOverhead+len(name)) + b.waits + int64(len(b.staged))*blockOverhead
	if b.file != nil {
		f := b.file
		n += f.Size + int64(len(f.Blocks))*blockOverhead + b.ids + int64(len(f.ContentType)+len(f.ContentEncoding)+
			len(f.ContentLanguage)+len(f.ContentDisposition)+len(f.CacheControl))
		for k, v := range b.file.Metadata {
			n += int64(len(k) + len(v))
		}
	}
	return n
}

// dropLocked removes an entry. Containers.mu is held.
func (c *BlobContainer) dropLocked(name string) {
	c.of.used -= c.blobs[name].cost(name)
	c.of.blobs--
	delete(c.blobs, name)
	if i, listed := slices.BinarySearch(c.files, name); listed {
		c.files = slices.Delete(c.files, i, i+1)
	}
	c.touchFile(name)
}

func (c *BlobContainer) emptyLocked() {
	c.files = nil
	for name := range c.blobs {
		c.dropLocked(name)
	}
}

// Reserve keeps room for a change of at most n bytes until release.
func (c *BlobContainer) Reserve(n int64) (release func(), bad *BlobError) {
	of := c.of
	of.mu.Lock()
	defer of.mu.Unlock()
	if n += 2 * blobOverhead; of.used+of.reserved+n > of.most {
		return nil, of.full
	}
	of.reserved += n
	return func() {
		of.mu.Lock()
		defer of.mu.Unlock()
		of.reserved -= n
	}, nil
}

// Get returns a file.
func (c *BlobContainer) Get(name string) (hubdata.Blob, bool) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.blobs[name].get()
}

// change lets do change the entry of a name, which it makes if there is none, except in that of the
// uploads, and returns the file.
func (c *BlobContainer) change(name string, when BlobCheck, do func(*storedBlob) *BlobError) (file hubdata.Blob,
	bad *BlobError) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.gone {
		return file, BlobNoContainer
	}
	b, had := c.blobs[name]
	switch {
	case had:
	case c.named:
		return file, BlobExpired // the URI expired while the body arrived
	case c.of.blobs >= maxContainerBlobs:
		return file, blobStoreFull
	default:
		b = &storedBlob{staged: make(map[string]hubdata.BlobBlock)}
	}
	if bad := when(b.file); bad != nil {
		return file, bad
	}
	before, tag := int64(0), b.tag()
	if had {
		before = b.cost(name)
	}
	if bad := do(b); bad != nil {
		return file, bad
	}
	if !had {
		c.of.blobs++
		c.blobs[name] = b
	}
	c.of.used += b.cost(name) - before
	if b.tag() != tag { // not for a staged block
		c.touchFile(name)
	}
	if i, listed := slices.BinarySearch(c.files, name); b.file != nil && !listed {
		c.files = slices.Insert(c.files, i, name)
	}
	file, _ = b.get()
	return file, nil
}

// Put stores a file sent in a single request. Staged blocks are dropped.
func (c *BlobContainer) Put(file hubdata.Blob, when BlobCheck) (hubdata.Blob, *BlobError) {
	return c.change(file.Name, when, func(b *storedBlob) *BlobError {
		b.replace(file, c.of.tags.next())
		return nil
	})
}

// Stage keeps a block for a later Commit.
func (c *BlobContainer) Stage(name string, part hubdata.BlobBlock) *BlobError {
	_, bad := c.change(name, Anyway, func(b *storedBlob) *BlobError { return b.stage(part) })
	return bad
}

// Commit makes a file of blocks. Staged blocks that are not in the list are dropped. A block may be
// in a file several times: the size of the file counts.
func (c *BlobContainer) Commit(file hubdata.Blob, list []ListedBlock, when BlobCheck) (hubdata.Blob, *BlobError) {
	return c.change(file.Name, when, func(b *storedBlob) *BlobError {
		if bad := b.assemble(&file, list); bad != nil {
			return bad
		}
		size := int64(blobOverhead + len(file.Name))
		for _, part := range file.Blocks {
			size += part.Size + blockOverhead + int64(len(part.ID))
		}
		used := c.of.used
		if _, had := c.blobs[file.Name]; had { // its place becomes free
			used -= b.cost(file.Name)
		}
		if used+size > c.of.most {
			return c.of.full
		}
		b.replace(file, c.of.tags.next())
		return nil
	})
}

// SetMetadata replaces the metadata of a file.
func (c *BlobContainer) SetMetadata(name string, metadata map[string]string, when BlobCheck) (hubdata.Blob,
	*BlobError) {
	exists := func(old *hubdata.Blob) *BlobError {
		if old == nil {
			return BlobNotFound
		}
		return when(old)
	}
	return c.change(name, exists, func(b *storedBlob) *BlobError {
		b.file.Metadata, b.file.ETag, b.file.Stored = metadata, c.of.tags.next(), c.of.now()
		return nil
	})
}

// Delete deletes a file.
func (c *BlobContainer) Delete(name string, when BlobCheck) *BlobError {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	b := c.blobs[name]
	if b == nil || b.file == nil {
		return BlobNotFound
	}
	if bad := when(b.file); bad != nil {
		return bad
	}
	c.dropLocked(name)
	return nil
}
