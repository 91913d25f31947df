package dpscert

import (
	"context"
	"crypto"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Options are the settings of a Renewer. The zero value and nil mean all defaults.
type Options struct {
	// Store keeps the certificates over restarts. Nil: a restart begins without one.
	Store Store
	// Registrar registers with the provisioning service. Nil: only the hub is asked, and a device
	// without a certificate, or with one that has ended, cannot connect.
	Registrar *provisioning.Client
	// ServiceOnly: the hub is not asked, as some end the connection of a device that asks them.
	ServiceOnly bool

	// NewKey makes the key of the next certificate, under a name that is not empty. It is called for
	// each new request. The program may delete keys whose names are not in the Store, at its start
	// or in OnEvent at StepRenewed: at other times a request may need them. Nil: all certificates are
	// for the key given to New.
	NewKey func(ctx context.Context) (key crypto.Signer, name string, err error)
	// OpenKey returns the key that NewKey made under this name. Set it together with NewKey. After an
	// error with a retryable Kind the connection is tried again later, unless a newer certificate has
	// its key. After another one the certificate of that key is not used.
	OpenKey func(ctx context.Context, name string) (crypto.Signer, error)

	// Policy decides about retries. Nil: delays from 1 minute, doubling to 1 hour, with jitter. The
	// second retry and later ones come after 100 ms at least.
	Policy retrypolicy.Policy
	// AnswerTimeout is the time for the hub's answer to a request, and again for the certificate of an
	// accepted one. 0: 2 minutes.
	AnswerTimeout time.Duration
	// TryAgainAfter is the time from a failure that is not retryable to the next attempt. 0: a day.
	TryAgainAfter time.Duration

	// OnEvent receives each step, on a goroutine of the client. It must not block.
	OnEvent func(Event)
	// Rand is the source of random numbers for delays. Nil: that of math/rand/v2.
	Rand func() uint64
}

const (
	defaultAnswerTimeout = 2 * time.Minute
	defaultTryAgainAfter = 24 * time.Hour
	// maxSpread bounds the random wait before a renewal that is overdue at the connect.
	maxSpread = time.Hour
	// stable is how long a connection lasts whose certificate the hub has accepted.
	stable = time.Minute
	// afterRefusal is the time from a certificate that the hub refuses to the next request.
	afterRefusal = time.Hour
)

var defaultPolicy = retrypolicy.ExponentialBackoffWithJitter{
	C: time.Minute, Cmin: time.Minute, Cmax: time.Hour, Jd: 0.5, Ju: 0.25,
}

// Renewer has the certificate of one device. Make it with New.
type Renewer struct {
	key crypto.Signer
	opt Options

	busy  atomic.Bool                           // Dial or a session runs
	clock atomic.Pointer[transport.Credentials] // those of the latest Dial
	// work (capacity 1) holds a value while the certificates are loaded or replaced. Its holder owns
	// the fields of this group.
	work    chan struct{}
	unread  time.Time // when the Store could not be read for the first time
	loaded  bool
	unsaved bool // the Store does not have the present certificates

	mu       sync.Mutex // guards the fields below
	offered  [][]byte
	current  *held  // nil: none
	previous *held  // nil: none
	failure  error  // of the latest request
	twin     uint32 // number of registrations

	schedule // owned by the goroutine of Dial, then by that of the renewal
}

// held is a certificate with its key.
type held struct {
	cert *tls.Certificate // with Leaf
	key  string           // the name of the key
	due  time.Time        // when to renew it
}

// validAt reports whether the certificate has not ended.
func (h *held) validAt(now time.Time) bool { return h != nil && now.Before(h.cert.Leaf.NotAfter) }

// New returns a Renewer for the certificates of key, or of the keys that Options.NewKey makes after
// it. The error is of Kind Invalid.
func New(key crypto.Signer, o *Options) (*Renewer, error) {
	r := &Renewer{key: key, work: make(chan struct{}, 1)}
	if o != nil {
		r.opt = *o
	}
	for _, d := range [...]struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"AnswerTimeout", &r.opt.AnswerTimeout, defaultAnswerTimeout},
		{"TryAgainAfter", &r.opt.TryAgainAfter, defaultTryAgainAfter},
	} {
		switch {
		case *d.value < 0:
			return nil, invalid("options: " + d.name + " is negative; give a positive duration, or 0 for " + d.def.String())
		case *d.value == 0:
			*d.value = d.def
		}
		*d.value = times.Cap(*d.value)
	}
	switch {
	case key == nil:
		return nil, invalid("the key is nil; give the device's private key")
	case (r.opt.NewKey == nil) != (r.opt.OpenKey == nil):
		return nil, invalid("options: NewKey and OpenKey belong together; give both or none")
	case r.opt.ServiceOnly && r.opt.Registrar == nil:
		return nil, invalid("options: ServiceOnly needs a Registrar; provisioning.New makes one")
	}
	if r.opt.Rand == nil {
		r.opt.Rand = rand.Uint64
	}
	if r.opt.Policy == nil {
		r.opt.Policy = defaultPolicy
	}
	return r, retrypolicy.Validate(r.opt.Policy)
}

func invalid(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpOpen, Err: errors.New(text)}
}

// Status describes the certificate in use.
type Status struct {
	// NotBefore and NotAfter are its life; zero without a certificate.
	NotBefore, NotAfter time.Time
	// Renew is when it will be renewed, unless failures delay that.
	Renew time.Time
	// Err is the failure of the latest request; nil after a success.
	Err error
}

// Status returns the present state. It may be called at any time.
func (r *Renewer) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Err: r.failure}
	if h := r.current; h != nil {
		s.NotBefore, s.NotAfter, s.Renew = h.cert.Leaf.NotBefore, h.cert.Leaf.NotAfter, h.due
	}
	return s
}

// Certificate returns the certificate in use, for netopt.Options.Certificate. It may be called at
// any time, also for other connections of the device. The error is of Kind Invalid if there is
// none.
func (r *Renewer) Certificate(ctx context.Context) (*tls.Certificate, error) {
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if h := r.held(); h != nil {
		return h.cert, nil
	}
	return nil, errNone
}

var errNone = invalid("there is no certificate; set Options.Registrar, or pass an issued chain to Offer")

// Offer gives the Renewer a chain that was issued for its key by a registration outside of it, such
// as one of package dpstransport. A chain that is older than the present certificate, has ended or
// belongs to another key is ignored. An empty chain is ignored.
func (r *Renewer) Offer(chain [][]byte) {
	if len(chain) > 0 {
		r.mu.Lock()
		r.offered = chain
		r.mu.Unlock()
	}
}

// registered returns the number of registrations so far.
func (r *Renewer) registered() uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.twin
}

func (r *Renewer) held() *held {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// now returns the device's wall clock. One that panics counts as unset.
func (r *Renewer) now() (at time.Time) {
	if c := r.clock.Load(); c != nil {
		_ = callback.Run("Credentials.Now", func() { at = c.Time() })
		return at
	}
	return time.Now().Round(0)
}

// clockSet reports whether the wall clock can be right.
func (r *Renewer) clockSet(now time.Time) bool {
	creds := r.clock.Load()
	if creds == nil {
		creds = &transport.Credentials{}
	}
	return !creds.Implausible(now)
}
