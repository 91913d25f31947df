package updates

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/keep"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// A release is a published update.
type release struct {
	update   updatedata.Update
	created  time.Time
	manifest []byte
	files    []*file // all that a device may download, those of referenced updates as well
}

// A file is content with an id.
type file struct {
	of       updatedata.UpdateID // the file is served until this update is removed
	id, name string
	content  []byte
	hash     [sha256.Size]byte
	created  time.Time
}

// newFile returns a file of an update. The id follows from both names and the content.
func newFile(of updatedata.UpdateID, name string, content []byte, created time.Time) *file {
	hash := sha256.Sum256(content)
	sum := sha256.Sum256(append([]byte(of.String()+"/"+name), hash[:]...))
	return &file{of, "f" + hex.EncodeToString(sum[:8]), name, content, hash, created}
}

// Publish adds an update.
func (s *Service) Publish(u updatedata.Update) error {
	u.Version = cmp.Or(u.Version, "5")
	if err := u.Check(); err != nil {
		return err
	}
	err := s.publish(u, s.o.Now().UTC())
	s.changed()
	return err
}

func (s *Service) publish(u updatedata.Update, created time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.releases[u.ID] != nil {
		return fmt.Errorf("%w: update %s; remove it first, or give another version", ErrExists, u.ID)
	}
	r := &release{update: u, created: created}
	m := newManifest(r)
	for i, step := range u.Steps {
		child := s.releases[step.Reference]
		switch {
		case step.Reference == (updatedata.UpdateID{}):
			continue
		case child == nil:
			return fmt.Errorf("%w: update %s, which step %d of %s refers to; publish it first", ErrNotFound,
				step.Reference, i, u.ID)
		case child.update.References() > 0:
			return fmt.Errorf("testbroker: update %s has references itself, so that no update can refer to it", step.Reference)
		}
		name := strings.Join([]string{child.update.ID.Provider, child.update.ID.Name, child.update.ID.Version,
			"updatemanifest.json"}, ".")
		f := newFile(u.ID, name, detached(child.manifest), r.created)
		m.Files[f.id] = f.document()
		m.Instructions.Steps[i].Manifest = f.id
		r.files = append(append(r.files, f), child.files...)
	}
	r.manifest = keep.MustJSON(m)
	for _, f := range r.files {
		s.files[f.id] = f
	}
	if len(r.manifest) > maxTwinManifest { // a device may be in the middle of an update from a twin
		f := manifestFile(u.ID, r.manifest, created)
		s.files[f.id] = f
	}
	s.releases[u.ID] = r
	s.Records.Touch(tableUpdates, u.ID.String())
	return nil
}

// Remove removes an update with its files and deployments.
func (s *Service) Remove(id updatedata.UpdateID) error {
	err := s.remove(id)
	s.changed()
	return err
}

func (s *Service) remove(id updatedata.UpdateID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.releases[id] == nil {
		return fmt.Errorf("%w: update %s", ErrNotFound, id)
	}
	for other, r := range s.releases {
		if slices.ContainsFunc(r.update.Steps, func(s updatedata.Step) bool { return s.Reference == id }) {
			return fmt.Errorf("%w: update %s, to which %s refers; remove %[3]s first", ErrInUse, id, other)
		}
	}
	delete(s.releases, id)
	s.Records.Touch(tableUpdates, id.String())
	s.withdrawLocked(func(d *deployment) bool { return d.data.Update == id })
	maps.DeleteFunc(s.files, func(_ string, f *file) bool { return f.of == id })
	return nil
}

// Updates returns the published updates, sorted by id.
func (s *Service) Updates() []updatedata.Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []updatedata.Update
	for _, r := range s.releases {
		all = append(all, r.update)
	}
	slices.SortFunc(all, func(a, b updatedata.Update) int { return cmp.Compare(a.ID.String(), b.ID.String()) })
	return all
}

// detached returns the file of a manifest that is not in the offer itself.
func detached(manifest []byte) []byte {
	return keep.MustJSON(struct {
		Manifest string `json:"updateManifest"`
	}{string(manifest)})
}

// document returns what a manifest says of a file.
func (f *file) document() *fileDocument {
	return &fileDocument{FileName: f.name, Size: int64(len(f.content)),
		Hashes: hashes{SHA256: base64.StdEncoding.EncodeToString(f.hash[:])}}
}

// filePath returns the path of a file's URL for a device.
func filePath(device string, f *file) string {
	return "/updates/files/" + url.PathEscape(device) + "/" + f.id + "/" + url.PathEscape(f.name)
}
