package updates

import (
	"crypto/rsa"
	"fmt"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// A ring is the keys of the service: names only, because the keys follow from them.
type ring struct {
	Roots    []string // by age
	Root     string   // the one that signs
	Signing  []string // by age; the last one signs
	Disabled []string // of both
	Version  int      // of the root key package
	Time     int64    // when it was published, in seconds
}

// newRing returns the keys of a new service: two roots, as devices have them from their factory.
func newRing(now int64) ring {
	r := ring{Version: 1, Time: now}.withRoot().withRoot().withKey()
	r.Root = r.Roots[0]
	return r
}

// The names have the form of the service's: a number for the date, R for a root and S for a key
// that it signs.
func (r ring) withRoot() ring {
	r.Roots = append(slices.Clip(r.Roots), fmt.Sprintf("ADU.2601%02d.R", len(r.Roots)+1))
	return r
}

func (r ring) withKey() ring {
	r.Signing = append(slices.Clip(r.Signing), fmt.Sprintf("ADU.2602%02d.R.S", len(r.Signing)+1))
	return r
}

func (r ring) without(name string) ring {
	r.Disabled = append(slices.Clip(r.Disabled), name)
	return r
}

func (r *ring) disabled(name string) bool { return slices.Contains(r.Disabled, name) }

// key returns the signing key.
func (r *ring) key() string { return r.Signing[len(r.Signing)-1] }

// signer returns what signs a manifest.
func (r *ring) signer(hash [32]byte) signer {
	return signer{r.Root, r.Root, r.key(), r.key(), algorithm, hash}
}

// Keys returns the keys of the service, roots first.
func (s *Service) Keys() []updatedata.Key {
	r := s.Ring()
	var all []updatedata.Key
	for i, name := range slices.Concat(r.Roots, r.Signing) {
		all = append(all, updatedata.Key{ID: name, Root: i < len(r.Roots), Disabled: r.disabled(name),
			Current: name == r.Root || name == r.key()})
	}
	return all
}

// Roots returns the public keys of the first two roots, which devices have from their factory.
func (s *Service) Roots() map[string]*rsa.PublicKey {
	all := make(map[string]*rsa.PublicKey)
	for _, name := range s.Ring().Roots[:factoryRoots] {
		all[name] = &privateKey(s.seed, name).PublicKey
	}
	return all
}

const factoryRoots = 2

// Ring returns the present keys.
func (s *Service) Ring() ring {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ring
}

// changeRing replaces the keys and publishes a new root key package.
func (s *Service) changeRing(change func(ring) (ring, error)) error {
	s.mu.Lock()
	r, err := change(s.ring)
	if err == nil {
		r.Version++
		r.Time = s.o.Now().Unix()
		s.ring = r
		s.Records.Touch(tableKeys, "")
	}
	s.mu.Unlock()
	s.changed()
	return err
}

// RotateSigningKey makes the service sign with a new key. The old one stays valid.
func (s *Service) RotateSigningKey() {
	s.changeRing(func(r ring) (ring, error) { return r.withKey(), nil })
}

// RevokeSigningKey disables the key with which the service signs, and makes a new one.
func (s *Service) RevokeSigningKey() {
	s.changeRing(func(r ring) (ring, error) { return r.without(r.key()).withKey(), nil })
}

// RotateRoot adds a root, with which the service signs from then on. Devices learn of it from the
// root key package, for which the older ones vouch.
func (s *Service) RotateRoot() {
	s.changeRing(func(r ring) (ring, error) {
		r = r.withRoot()
		r.Root = r.Roots[len(r.Roots)-1]
		return r, nil
	})
}

// DisableRoot disables a root. If it is the one that signs, the newest other root signs instead.
func (s *Service) DisableRoot(name string) error {
	return s.changeRing(func(r ring) (ring, error) {
		after := r.without(name)
		others := slices.DeleteFunc(slices.Clone(r.Roots), after.disabled)
		switch {
		case !slices.Contains(r.Roots, name):
			return r, fmt.Errorf("%w: root key %q; there are: %v", ErrNotFound, name, r.Roots)
		case len(others) == 0:
			return r, fmt.Errorf("testbroker: root key %q is the last one; add another before", name)
		case name == r.Root:
			after.Root = others[len(others)-1]
		}
		return after, nil
	})
}
