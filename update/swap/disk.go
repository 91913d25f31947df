package swap

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// disk is the file with the files beside it, as one call of a handler finds them.
type disk struct {
	path, fresh, old, starts string

	wanted bool // the file has the content of the step
	trial  bool // starts exists
	same   bool // old is another name of the file
	loaded bool // fresh exists
}

// step is called before each change on the disk. Tests replace it.
var step = func(string) {}

// open returns the files of path.
func open(path string) (*disk, error) {
	path, err := filepath.EvalSymlinks(path) // a rename would replace the link
	if err != nil {
		return nil, fmt.Errorf("swap: File.Path: %w", err)
	}
	d := &disk{path: path, fresh: path + ".new", old: path + ".old", starts: path + ".starts"}
	d.trial, d.loaded = regular(d.starts), regular(d.fresh)
	own, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("swap: File.Path: %w", err)
	}
	before, err := os.Lstat(d.old)
	d.same = err == nil && os.SameFile(own, before)
	return d, nil
}

// regular reports whether there is a file at path. A link to one, which another program may have
// left, does not count.
func regular(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// create returns a new, empty file at path, in place of what is there.
func create(path string) (*os.File, error) {
	if err := remove(path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// begin creates starts.
func (d *disk) begin() error {
	out, err := create(d.starts)
	if err != nil {
		return err
	}
	return out.Close()
}

// look returns the files for a step.
func (h *File) look(w *agent.Work) (*disk, error) {
	switch {
	case h.Path == "" || h.Healthy == nil:
		return nil, errors.New("swap: File.Path or File.Healthy is not set; set both")
	case w.Step.Manifest != "":
		return nil, errors.New("swap: the step refers to another manifest; publish its steps in this one")
	case len(w.Files) != 1:
		return nil, fmt.Errorf("swap: the step has %d files; give each file a step", len(w.Files))
	}
	d, err := open(h.Path)
	if err != nil {
		return nil, err
	}
	d.wanted, err = has(d.path, w.Files[0].SHA256)
	return d, err
}

// has reports whether a file has a hash.
func has(path string, want [sha256.Size]byte) (bool, error) {
	in, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("swap: %w", err)
	}
	defer in.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return false, fmt.Errorf("swap: %w", err)
	}
	return [sha256.Size]byte(sum.Sum(nil)) == want, nil
}

// back reports whether the old file was put back after a trial.
func (d *disk) back() bool { return d.trial && d.same && !d.loaded }

// download completes fresh. The part that an earlier download has left may be damaged by a power
// cut, or belong to another file: then the download begins again.
func (d *disk) download(ctx context.Context, w *agent.Work) error {
	open := create
	if d.loaded {
		open = func(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR, 0) }
	}
	out, err := open(d.fresh)
	if err != nil {
		return err
	}
	defer out.Close()
	info, err := out.Stat()
	if err != nil {
		return err
	}
	if size := info.Size(); size > 0 && size <= w.Files[0].Size {
		err := receive(ctx, w, out, io.LimitReader(out, size))
		if err == nil || transport.KindOf(err) != transport.Protocol {
			return err
		}
	}
	if err := out.Truncate(0); err != nil {
		return err
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return receive(ctx, w, out, nil)
}

// receive writes what follows behind have, which moves out to there.
func receive(ctx context.Context, w *agent.Work, out *os.File, have io.Reader) error {
	in, err := w.Open(ctx, &w.Files[0], have)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Sync()
}

// prepare verifies fresh, and gives it mode and owner of the file.
func (d *disk) prepare(want [sha256.Size]byte) error {
	if !d.loaded {
		return errors.New("swap: there is no downloaded file at " + d.fresh)
	}
	if ok, err := has(d.fresh, want); err != nil || !ok {
		return errors.Join(err, errors.New("swap: "+d.fresh+" was changed after its download"))
	}
	info, err := os.Stat(d.path)
	if err != nil {
		return fmt.Errorf("swap: %w", err)
	}
	out, err := os.Open(d.fresh)
	if err != nil {
		return fmt.Errorf("swap: %w", err)
	}
	defer out.Close()
	giveTo(out, info)
	if err := errors.Join(out.Chmod(info.Mode()), out.Sync()); err != nil {
		return fmt.Errorf("swap: %w", err)
	}
	return nil
}

// keepOld gives the file the second name old, and begins the trial.
func (d *disk) keepOld() error {
	if err := d.link(d.path, d.old); err != nil {
		return err
	}
	return d.change("begin the trial", d.begin)
}

// exchange puts the new file in the place of the old one.
func (d *disk) exchange() error {
	return d.change("exchange the files", func() error { return os.Rename(d.fresh, d.path) })
}

// restore puts the old file back. The trial lasts until settle, when the service has restarted.
func (d *disk) restore() error {
	if !regular(d.old) {
		return errors.New("swap: the old file is not at " + d.old)
	}
	if !d.trial {
		if err := d.change("begin the way back", d.begin); err != nil {
			return err
		}
	}
	return d.link(d.old, d.path)
}

// settle ends the trial.
func (d *disk) settle() error {
	return d.change("end the trial", func() error { return remove(d.starts) })
}

// discard removes what was prepared for an exchange.
func (d *disk) discard() error {
	if err := d.settle(); err != nil {
		return err
	}
	return d.change("remove the download", func() error { return remove(d.fresh) })
}

// link makes name another name of the file at path, in one step.
func (d *disk) link(path, name string) error {
	part := d.path + ".link"
	err := d.change("link "+filepath.Base(path), func() error { return errors.Join(remove(part), os.Link(path, part)) })
	if err != nil {
		return err
	}
	// Rename does nothing if both are the same file already, so part may remain.
	return d.change("name the link "+filepath.Base(name), func() error {
		return errors.Join(os.Rename(part, name), remove(part))
	})
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// change makes one change and flushes the folder.
func (d *disk) change(name string, f func() error) error {
	step(name)
	if err := f(); err != nil {
		return fmt.Errorf("swap: %s: %w", name, err)
	}
	if err := flush(filepath.Dir(d.path)); err != nil {
		return fmt.Errorf("swap: %s: %w", name, err)
	}
	return nil
}
