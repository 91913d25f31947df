package outbox_test

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/hubline-iot/hubline/outbox"
)

// op is one call of the simulated disk.
type op struct {
	name string // open, create, remove, rename, list, mkdir, syncfolder, read, write, truncate, sync, linked
	path string
	at   int64
	n    int
}

// disk is a file system in memory with a cache. Unsynced data is lost when the power fails.
type disk struct {
	mu       sync.Mutex
	hook     func(op) error // called before each op, without mu; its error becomes the op's; it may block
	names    map[string]*inode
	durable  map[string]*inode // durable names
	capacity int64             // in bytes; 0: no limit
	windows  bool              // an open file cannot be removed
}

type inode struct {
	folder   bool
	data     []byte
	durable  []byte   // durable data
	unsynced []change // since durable
	bad      map[int64]bool
	locked   bool
	handles  int // number of open handles
}

// change is a write, or a truncation if data is nil.
type change struct {
	at   int64
	data []byte
}

func (c change) apply(b []byte) []byte {
	end := c.at + int64(len(c.data))
	switch {
	case c.data == nil && c.at < int64(len(b)):
		return b[:c.at:c.at]
	case int64(len(b)) < end:
		b = append(b, make([]byte, end-int64(len(b)))...)
	}
	copy(b[c.at:], c.data)
	return b
}

func newDisk() *disk {
	top := &inode{folder: true}
	return &disk{names: map[string]*inode{root: top}, durable: map[string]*inode{root: top}}
}

// page is the unit of space and of unreadable sectors.
const page = 4096

func pages(n int64) int64 { return (n + page - 1) / page }

// on sets the hook called before each op.
func (d *disk) on(hook func(op) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook = hook
}

func (d *disk) ask(o op) error {
	d.mu.Lock()
	hook := d.hook
	d.mu.Unlock()
	if hook != nil {
		return hook(o)
	}
	return nil
}

func failure(o op, err error) error { return &os.PathError{Op: o.name, Path: o.path, Err: err} }

// used returns the space used by files with a name. mu is held.
func (d *disk) used() (n int64) {
	for _, f := range d.names {
		n += pages(int64(len(f.data))) * page
	}
	return n
}

func (d *disk) Open(path string, flag int) (outbox.File, error) {
	o := op{name: "open", path: path}
	d.mu.Lock()
	if d.names[path] == nil {
		o.name = "create"
	}
	d.mu.Unlock()
	if err := d.ask(o); err != nil {
		return nil, failure(o, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.names[path]
	switch {
	case f == nil && flag&os.O_CREATE == 0, d.names[filepath.Dir(path)] == nil:
		return nil, failure(o, os.ErrNotExist)
	case f == nil:
		f = &inode{}
		d.names[path] = f
	case flag&os.O_EXCL != 0:
		return nil, failure(o, os.ErrExist)
	}
	f.handles++
	return &handle{disk: d, inode: f, path: path}, nil
}

func (d *disk) Remove(path string) error {
	o := op{name: "remove", path: path}
	if err := d.ask(o); err != nil {
		return failure(o, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch f := d.names[path]; {
	case f == nil:
		return failure(o, os.ErrNotExist)
	case d.windows && f.handles > 0:
		return failure(o, syscall.EACCES)
	}
	delete(d.names, path)
	return nil
}

func (d *disk) Rename(from, to string) error {
	o := op{name: "rename", path: from}
	if err := d.ask(o); err != nil {
		return failure(o, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[to] = d.names[from]
	delete(d.names, from)
	return nil
}

func (d *disk) List(folder string) (entries []outbox.Entry, err error) {
	o := op{name: "list", path: folder}
	if err := d.ask(o); err != nil {
		return nil, failure(o, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(d.names)) {
		if filepath.Dir(path) == folder {
			entries = append(entries, outbox.Entry{Name: filepath.Base(path), Regular: !d.names[path].folder})
		}
	}
	return entries, nil
}

func (d *disk) Exists(path string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.names[path] != nil
}

func (d *disk) Mkdir(path string) error {
	o := op{name: "mkdir", path: path}
	if err := d.ask(o); err != nil {
		return failure(o, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[path] = &inode{folder: true}
	return nil
}

func (d *disk) SyncFolder(path string) error {
	o := op{name: "syncfolder", path: path}
	if err := d.ask(o); err != nil {
		return failure(o, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names[path] == nil {
		return failure(o, os.ErrNotExist)
	}
	maps.DeleteFunc(d.durable, func(name string, _ *inode) bool { return name != root && filepath.Dir(name) == path })
	for name, f := range d.names {
		if filepath.Dir(name) == path {
			d.durable[name] = f
		}
	}
	return nil
}

func (d *disk) Lock(f outbox.File) error {
	h := f.(*handle)
	d.mu.Lock()
	defer d.mu.Unlock()
	if h.inode.locked {
		return syscall.EWOULDBLOCK
	}
	h.inode.locked, h.locker = true, true
	return nil
}

// spoil makes a range of pages of a file unreadable.
func (d *disk) spoil(path string, from, to int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.names[path]
	if f.bad == nil {
		f.bad = map[int64]bool{}
	}
	for p := from / page; p*page < to; p++ {
		f.bad[p] = true
	}
}

// edit changes the contents of a file, both in the cache and on the disk.
func (d *disk) edit(path string, change func([]byte) []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.names[path]
	f.data = change(slices.Clone(f.data))
	f.durable, f.unsynced = slices.Clone(f.data), nil
}

func (d *disk) segments(folder string) (paths []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(d.names)) {
		if filepath.Dir(path) == folder && strings.HasSuffix(path, ".messages") {
			paths = append(paths, path)
		}
	}
	return paths
}

func (d *disk) size(path string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return int64(len(d.names[path].data))
}

// handle is an open file of a disk.
type handle struct {
	disk   *disk
	inode  *inode
	path   string
	locker bool
	closed bool
}

func (h *handle) begin(name string, at int64, n int) (op, error) {
	o := op{name, h.path, at, n}
	if err := h.disk.ask(o); err != nil {
		return o, failure(o, err)
	}
	return o, nil
}

// closedLocked returns the error of o on a closed file.
func (h *handle) closedLocked(o op) error {
	if h.closed {
		return failure(o, os.ErrClosed)
	}
	return nil
}

func (h *handle) ReadAt(p []byte, at int64) (n int, err error) {
	o, err := h.begin("read", at, len(p))
	if err != nil {
		return 0, err
	}
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if err := h.closedLocked(o); err != nil {
		return 0, err
	}
	for n < len(p) && at+int64(n) < int64(len(h.inode.data)) {
		i := at + int64(n)
		if h.inode.bad[i/page] {
			return n, failure(o, errUnreadable)
		}
		end := min((i/page+1)*page, int64(len(h.inode.data)))
		n += copy(p[n:], h.inode.data[i:end])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(p []byte, at int64) (n int, err error) {
	o, err := h.begin("write", at, len(p))
	if err != nil {
		return 0, err
	}
	d := h.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := h.closedLocked(o); err != nil {
		return 0, err
	}
	for i := at / page; i*page < at+int64(len(p)); i++ {
		if !h.inode.bad[i] {
			continue
		}
		if at > i*page || at+int64(len(p)) < (i+1)*page { // part of a page: the system must read the rest
			return 0, failure(o, errUnreadable)
		}
		delete(h.inode.bad, i)
	}
	n = len(p)
	if d.capacity > 0 {
		have := pages(int64(len(h.inode.data)))
		free := max(0, (d.capacity-d.used())/page)
		n = int(min(int64(n), max(0, (have+free)*page-at)))
	}
	if n > 0 {
		c := change{at, slices.Clone(p[:n])}
		h.inode.data = c.apply(h.inode.data)
		h.inode.unsynced = append(h.inode.unsynced, c)
	}
	if n < len(p) {
		return n, failure(o, errDiskFull)
	}
	return n, nil
}

func (h *handle) Truncate(size int64) error {
	o, err := h.begin("truncate", size, 0)
	if err != nil {
		return err
	}
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if err := h.closedLocked(o); err != nil {
		return err
	}
	c := change{at: size}
	h.inode.data = c.apply(h.inode.data)
	h.inode.unsynced = append(h.inode.unsynced, c)
	return nil
}

// Sync makes durable what was written before it began.
func (h *handle) Sync() error {
	h.disk.mu.Lock()
	upTo, data := len(h.inode.unsynced), slices.Clone(h.inode.data)
	h.disk.mu.Unlock()
	o, err := h.begin("sync", 0, 0)
	if err != nil {
		return err
	}
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if err := h.closedLocked(o); err != nil {
		return err
	}
	h.inode.durable, h.inode.unsynced = data, slices.Clone(h.inode.unsynced[upTo:])
	return nil
}

func (h *handle) Close() error {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if !h.closed {
		h.inode.handles--
	}
	h.closed = true
	if h.locker {
		h.inode.locked = false
	}
	return nil
}

func (h *handle) Size() (int64, error) {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	return int64(len(h.inode.data)), nil
}

func (h *handle) Linked() (bool, error) {
	o, err := h.begin("linked", 0, 0)
	if err != nil {
		return false, err
	}
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if err := h.closedLocked(o); err != nil {
		return false, err
	}
	for _, f := range h.disk.names {
		if f == h.inode {
			return true, nil
		}
	}
	return false, nil
}

// after is the state of files after a power cut: their durable content, plus the changes since that
// a variant selects.
type after struct {
	name  string
	names func(cached, durable map[string]*inode) map[string]*inode
	data  func(f *inode) []byte
}

func durableNames(_, durable map[string]*inode) map[string]*inode { return durable }
func cachedNames(cached, _ map[string]*inode) map[string]*inode   { return cached }

// unionNames has the new files and also the removed ones.
func unionNames(cached, durable map[string]*inode) map[string]*inode {
	all := maps.Clone(durable)
	maps.Copy(all, cached)
	return all
}

// crossNames has neither the new nor the removed files.
func crossNames(cached, durable map[string]*inode) map[string]*inode {
	both := maps.Clone(durable)
	maps.DeleteFunc(both, func(name string, _ *inode) bool { return cached[name] == nil })
	return both
}

func durableData(f *inode) []byte { return slices.Clone(f.durable) }
func cachedData(f *inode) []byte  { return slices.Clone(f.data) }

// tornData has all changes, and half of the last one.
func tornData(f *inode) []byte {
	b := slices.Clone(f.durable)
	for i, c := range f.unsynced {
		if i == len(f.unsynced)-1 {
			c.data = c.data[:len(c.data)/2]
			if len(c.data) == 0 {
				break
			}
		}
		b = c.apply(b)
	}
	return b
}

// lastData has only the last change.
func lastData(f *inode) []byte {
	b := slices.Clone(f.durable)
	if n := len(f.unsynced); n > 0 {
		b = f.unsynced[n-1].apply(b)
	}
	return b
}

// zeroData has the new length, with zeros in place of the data.
func zeroData(f *inode) []byte {
	b := slices.Clone(f.durable)
	for _, c := range f.unsynced {
		if c.data != nil {
			c.data = make([]byte, len(c.data))
		}
		b = c.apply(b)
	}
	return b
}

// junkData has other bytes in place of the data.
func junkData(f *inode) []byte {
	b := slices.Clone(f.durable)
	for _, c := range f.unsynced {
		if c.data != nil {
			junk := slices.Clone(c.data)
			for i := range junk {
				junk[i] ^= 0x5a
			}
			c.data = junk
		}
		b = c.apply(b)
	}
	return b
}

var powerCuts = []after{
	{"nothing of the cache", durableNames, durableData},
	{"the whole cache", cachedNames, cachedData},
	{"names only", cachedNames, durableData},
	{"data only", durableNames, cachedData},
	{"the last write torn", cachedNames, tornData},
	{"the last write alone", cachedNames, lastData},
	{"lengths without data", cachedNames, zeroData},
	{"damaged writes", cachedNames, junkData},
	{"new files, removed ones back", unionNames, cachedData},
	{"new files lost, others removed", crossNames, cachedData},
}

// cut returns the disk after a power cut.
func (d *disk) cut(a after) *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := newDisk()
	names := a.names(d.names, d.durable)
	for _, path := range slices.Sorted(maps.Keys(names)) {
		f := names[path]
		if path == root || names[filepath.Dir(path)] == nil {
			continue
		}
		again := &inode{folder: f.folder}
		if !f.folder {
			again.data = a.data(f)
			again.durable = slices.Clone(again.data)
		}
		left.names[path], left.durable[path] = again, again
	}
	return left
}

// kill returns the disk after its process was killed: the cache survives.
func (d *disk) kill() *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := newDisk()
	copies := map[*inode]*inode{d.names[root]: left.names[root]}
	again := func(f *inode) *inode {
		if copies[f] == nil {
			copies[f] = &inode{folder: f.folder, data: slices.Clone(f.data), durable: slices.Clone(f.durable),
				unsynced: slices.Clone(f.unsynced)}
		}
		return copies[f]
	}
	for path, f := range d.names {
		left.names[path] = again(f)
	}
	for path, f := range d.durable {
		left.durable[path] = again(f)
	}
	return left
}
