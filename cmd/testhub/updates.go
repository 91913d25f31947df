package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// maxUpdate is the size limit of a request that publishes an update.
const maxUpdate = 64 << 20

// manifestSuffix is the end of the names of import manifests, as the service's tools write them.
const manifestSuffix = ".importmanifest.json"

// updateSettings are the flags of the update service.
type updateSettings struct{ dir string }

func (s *updateSettings) flags(f *flag.FlagSet) {
	f.StringVar(&s.dir, "updates", "", "run an update service behind a provisioning service, with the updates in this "+
		"`directory`: import manifests, named *"+manifestSuffix+", each beside its files")
}

// A publisher is the update service with the updates of a directory.
type publisher struct {
	*testbroker.Updates
	dir      string
	imported map[updatedata.UpdateID]bool // from the directory
}

// open makes the service; nil without one.
func (s *updateSettings) open(seed uint64, store testbroker.Store) (*publisher, error) {
	if s.dir == "" {
		return nil, nil
	}
	u, err := testbroker.NewUpdates(&testbroker.UpdatesOptions{Seed: seed, Store: store})
	if err != nil {
		return nil, hubError(err)
	}
	p := &publisher{u, s.dir, make(map[updatedata.UpdateID]bool)}
	if _, _, err := p.reload(); err != nil {
		u.Close()
		return nil, fmt.Errorf("flag -updates: %w", err)
	}
	return p, nil
}

// serveAt sets the address from which devices download files: that of the hub, or without HTTPS
// that of the provisioning service.
func (p *publisher) serveAt(hub, dps map[string]string) {
	if at := cmp.Or(hub["https"], dps["https"]); p != nil && at != "" {
		p.SetFileURL("https://" + at)
	}
}

func (p *publisher) close() {
	if p != nil {
		p.Close()
	}
}

// reload reads the directory, publishes what is new and replaces what has changed, with the updates
// that refer to it. It removes updates whose manifests are gone. Nothing changes if a manifest or a
// file is wrong, or a reference.
func (p *publisher) reload() (published, removed []updatedata.UpdateID, err error) {
	found, err := readUpdates(p.dir)
	if err != nil {
		return nil, nil, err
	}
	there, want := p.Updates.Updates(), slices.Clip(found)
	for _, u := range there {
		if !p.imported[u.ID] && index(found, u.ID) < 0 {
			want = append(want, u) // a request published it
		}
	}
	if err := checkReferences(want); err != nil {
		return nil, nil, err
	}
	clear(p.imported)
	for _, u := range found {
		p.imported[u.ID] = true
	}
	referredFirst(want)
	referredFirst(there)
	stale := make(map[updatedata.UpdateID]bool)
	for _, u := range there {
		i := index(want, u.ID)
		stale[u.ID] = i < 0 || !same(u, want[i]) ||
			slices.ContainsFunc(u.Steps, func(s updatedata.Step) bool { return stale[s.Reference] })
	}
	for _, u := range slices.Backward(there) {
		if stale[u.ID] {
			err = errors.Join(err, p.Remove(u.ID))
		}
		if index(want, u.ID) < 0 {
			removed = append(removed, u.ID)
		}
	}
	for _, u := range want {
		if stale[u.ID] || index(there, u.ID) < 0 {
			err = errors.Join(err, p.Publish(u))
			published = append(published, u.ID)
		}
	}
	return published, removed, err
}

// index returns the place of an update; negative if it is not there.
func index(all []updatedata.Update, id updatedata.UpdateID) int {
	return slices.IndexFunc(all, func(u updatedata.Update) bool { return u.ID == id })
}

// referredFirst sorts updates: those without references first, as Publish needs them.
func referredFirst(all []updatedata.Update) {
	slices.SortStableFunc(all, func(a, b updatedata.Update) int { return a.References() - b.References() })
}

// checkReferences returns an error for an update that refers to one that is missing, or that has
// references itself.
func checkReferences(all []updatedata.Update) error {
	for _, u := range all {
		for _, s := range u.Steps {
			switch i := index(all, s.Reference); {
			case s.Reference == (updatedata.UpdateID{}):
			case i < 0:
				return fmt.Errorf("update %s refers to %s, which is missing; add its manifest, or remove %[1]s",
					u.ID, s.Reference)
			case all[i].References() > 0:
				return fmt.Errorf("update %s refers to %s, which has references itself; let %[1]s refer to those", u.ID,
					s.Reference)
			}
		}
	}
	return nil
}

// same reports whether two updates are the same when written, as a store does.
func same(a, b updatedata.Update) bool {
	one, wrong := json.Marshal(a)
	other, bad := json.Marshal(b)
	return wrong == nil && bad == nil && bytes.Equal(one, other)
}

// readUpdates returns the updates of a directory and those below it.
func readUpdates(dir string) ([]updatedata.Update, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var all []updatedata.Update
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, manifestSuffix) {
			return err
		}
		text, err := root.ReadFile(name)
		if err != nil {
			return err
		}
		u, err := updatedata.ParseImport(text, func(file string) ([]byte, error) {
			return root.ReadFile(path.Join(path.Dir(name), file))
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, u)
		return nil
	})
	return all, err
}
