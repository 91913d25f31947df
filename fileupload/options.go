package fileupload

import (
	"crypto/tls"
	"errors"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Options are the settings of an Uploader. The zero value of each field means its default; nil
// means all defaults.
type Options struct {
	// Network configures the connection to the hub. Its Dial and Proxy also serve the connections to
	// storage, whose address comes from the hub. Tunnel and WriteTimeout must be unset:
	// HTTPS has no tunnels, and RequestTimeout and MinRate bound each request. One that is set is
	// refused with Invalid. Plaintext turns TLS off towards both.
	Network netopt.Options
	// StorageTLS is the base of the TLS configuration for storage, which never gets a client
	// certificate. Nil: Network.TLS without its ServerName and certificates; then Network.RootCAs also
	// holds for storage.
	StorageTLS *tls.Config

	// BlockSize is the size in bytes of the first blocks of a file, 64 KiB to 4000 MiB. A file up to
	// that size goes in one request. An interrupted block is sent again from its beginning, so choose
	// a size that the link carries between two losses. 0: 1 MiB.
	BlockSize int64
	// MaxBlockSize is the largest block size. The size doubles after each 10,000 blocks, since a file
	// has at most 50,000. 0: 16 times BlockSize, which with its default allows files of 302 GiB.
	MaxBlockSize int64
	// Parallel is the number of blocks of a file in flight, 1 to 64. An upload needs memory for that
	// many blocks. 0: 2.
	Parallel int

	// RetryPolicy decides about each request on its own: each block, the beginning, the commit and the
	// notification have separate series of retries. It decides only about failures that package
	// errfilter lets through. The delay is at least the one that the service asked for, up to an hour,
	// at least 10 s to a minute after Throttled, Quota and ClockUnset, and from the second retry on at
	// least 100 ms unless the policy is retrypolicy.Immediately. Nil:
	// retrypolicy.ExponentialBackoffWithJitter{}, which never stops; then the context bounds the
	// upload.
	RetryPolicy retrypolicy.Policy
	// Rand returns random numbers for RetryPolicy; it is called from several goroutines at a time.
	// Nil: built-in generators.
	Rand func() uint64
	// RequestTimeout bounds one attempt of a request, in addition to the time for its payload at
	// MinRate. It also bounds the time in which the network accepts none of the payload, or the time
	// of 1 KiB at MinRate if that is longer. A longer attempt fails with Timeout. A new token has as
	// long before the attempt. 0: 30 s.
	RequestTimeout time.Duration
	// MinRate is the rate, in bytes per second and request, below which a link counts as dead. 0: 8
	// KiB/s, which allows a block of 1 MiB 158 s.
	MinRate int64
	// NotifyTimeout bounds the notification of a failure, retries included, and after the context's
	// end also that of a success. If the context ends during the request for an upload URI, half of it
	// is for the hub's answer. 0: 10 s.
	NotifyTimeout time.Duration

	// OnProgress is called for each block that storage has taken. OnRetry is called for each retry
	// before its delay. Both run on goroutines of the upload, one at a time per upload, and block it
	// while they run. They must not call Close. Nil: not called.
	OnProgress func(Progress)
	OnRetry    func(Retry)
}

// Limits of the blob service for a block blob since version 2019-12-12.
const (
	maxBlocks       = 50_000
	maxBlock  int64 = min(4000<<20, math.MaxInt) // a 32-bit processor can address less
)

const (
	minBlock    = 64 << 10
	maxParallel = 64
	maxInfo     = 256
)

// resolve returns a copy with the defaults filled in, or an *Error of Kind Invalid for the first
// wrong field.
func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	r.Network.TLS, r.StorageTLS = r.Network.TLS.Clone(), r.StorageTLS.Clone()
	if r.BlockSize == 0 {
		r.BlockSize = 1 << 20
	}
	for _, f := range []struct {
		name                  string
		value                 *int64
		fallback, least, most int64
	}{
		{"BlockSize", &r.BlockSize, 0, minBlock, maxBlock},
		{"MaxBlockSize", &r.MaxBlockSize, max(16*min(r.BlockSize, maxBlock/16), r.BlockSize), r.BlockSize, maxBlock},
		{"MinRate", &r.MinRate, 8 << 10, 1, 1 << 40},
	} {
		if *f.value == 0 {
			*f.value = f.fallback
		}
		if *f.value < f.least || *f.value > f.most {
			return r, invalid("options: " + f.name + " is " + strconv.FormatInt(*f.value, 10) + "; give " +
				strconv.FormatInt(f.least, 10) + " to " + strconv.FormatInt(f.most, 10) + ", or 0 for the default")
		}
	}
	for _, f := range []struct {
		name     string
		value    *time.Duration
		fallback time.Duration
	}{
		{"RequestTimeout", &r.RequestTimeout, 30 * time.Second},
		{"NotifyTimeout", &r.NotifyTimeout, 10 * time.Second},
	} {
		if *f.value < 0 {
			return r, invalid("options: " + f.name + " is negative; give a positive duration, or 0 for the default")
		}
		if *f.value == 0 {
			*f.value = f.fallback
		}
		*f.value = times.Cap(*f.value)
	}
	if r.Parallel == 0 {
		r.Parallel = 2
	}
	if r.RetryPolicy == nil {
		r.RetryPolicy = retrypolicy.ExponentialBackoffWithJitter{}
	}
	switch {
	case r.Parallel < 0 || r.Parallel > maxParallel:
		return r, invalid("options: Parallel is " + strconv.Itoa(r.Parallel) + "; give 1 to " + strconv.Itoa(maxParallel))
	case len(r.Network.ProductInfo) > maxInfo:
		return r, invalid("options: ProductInfo has " + strconv.Itoa(len(r.Network.ProductInfo)) + " bytes; give " +
			strconv.Itoa(maxInfo) + " at most")
	}
	if err := retrypolicy.Validate(r.RetryPolicy); err != nil {
		return r, invalid("options: RetryPolicy: " + err.Error())
	}
	d := r.toHub()
	if err := d.Resolve(); err != nil {
		e := *transport.Find(err)
		e.Scope, e.Op = transport.ScopeOperation, transport.OpOpen
		return r, &e
	}
	r.Network = d.Network
	return r, nil
}

func printable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// alpn is the list of protocols offered in TLS (RFC 7301).
var alpn = []string{"http/1.1"}

// toHub returns the dialer for the hub.
func (o *Options) toHub() *dialer.Dialer {
	return &dialer.Dialer{Protocol: &protocol, Network: o.Network, ALPN: alpn}
}

// toStorage returns the dialer for storage at addr. The upload URI authorizes the requests, so the
// dialer does not present the device's certificate.
func (o *Options) toStorage(addr string) *dialer.Dialer {
	network := o.Network
	config := o.StorageTLS.Clone()
	if config != nil {
		network.RootCAs = nil
	} else {
		if config = o.Network.TLS.Clone(); config == nil {
			config = new(tls.Config)
		}
		config.ServerName = ""
	}
	config.Certificates, config.GetClientCertificate = nil, nil
	network.TLS, network.Certificate, network.Addr = config, nil, addr
	return &dialer.Dialer{Protocol: &protocol, Network: network, ALPN: alpn}
}

func invalid(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpOpen, Proto: proto, Err: errors.New(text)}
}

// Limits of the blob service for a blob's name.
const (
	maxName     = 1024
	maxSegments = 254
)

// checkName rejects names that storage would refuse or change.
func checkName(device, name string) error {
	segments, begin := 0, 0
	for i := 0; i <= len(name); i++ {
		switch {
		case i < len(name) && (name[i] < ' ' || name[i] == 0x7f):
			return invalidName(name, "has a control character")
		case i < len(name) && name[i] == '\\':
			return invalidName(name, "has a backslash, which storage takes for a slash; give '/'")
		case i == len(name) || name[i] == '/':
			if part := name[begin:i]; part == "" || part == "." || part == ".." {
				return invalidName(name, "has an empty segment, \".\" or \"..\" between slashes or at its ends")
			}
			segments, begin = segments+1, i+1
		}
	}
	switch {
	case !utf8.ValidString(name):
		return invalidName(name, "is not valid UTF-8")
	case name[len(name)-1] == '.':
		return invalidName(name, "ends in a dot, which storage cuts off")
	case utf8.RuneCountInString(device)+1+utf8.RuneCountInString(name) > maxName:
		return invalidName(name[:40]+"...", "is too long; with the device's id before it, it may have "+strconv.Itoa(maxName)+
			" characters")
	case segments+1 > maxSegments:
		return invalidName(name[:40]+"...", "has too many segments; give "+strconv.Itoa(maxSegments-1)+" at most")
	}
	return nil
}

func invalidName(name, what string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpSend, Proto: proto,
		Err: errors.New("name " + strconv.Quote(name) + " " + what)}
}
