package hub

import (
	"cmp"
	"slices"
	"time"
)

// HTTPOptions are the settings of connections over HTTP. The zero value of each field stands for
// its default.
type HTTPOptions struct {
	// HeaderTimeout is how long a client may take for the head of a request. Default: 1 minute.
	HeaderTimeout time.Duration
	// RequestTimeout is how long a client may take for a request with its body. Default: 2 minutes.
	RequestTimeout time.Duration
	// IdleTimeout is how long a connection may be without a request. Default: 4 minutes; negative: as
	// long as it likes.
	IdleTimeout time.Duration
	// MaxHeader is how many bytes the head of a request may have. Default: 64 KB.
	MaxHeader int
	// NoHTTP2 leaves HTTP/2 out of the offer: TLS clients get HTTP/1.1.
	NoHTTP2 bool
	// APIVersions are the versions that the query parameter api-version may name. Default:
	// [KnownAPIVersions].
	APIVersions []string
	// StrictValues refuses messages with properties whose values have other characters than names may
	// have: ASCII letters and digits and ! # $ % & ' * + - . ^ _ ` | ~. The service's documents say
	// that it takes no others.
	StrictValues bool
	// TextErrors gives the bodies of errors the older form, "ErrorCode:DeviceNotFound;..." instead of
	// JSON in JSON.
	TextErrors bool
	// RetryAfterDate writes Retry-After as a date instead of a number of seconds.
	RetryAfterDate bool
}

// KnownAPIVersions returns the versions of the service's API that devices are known to ask for.
func KnownAPIVersions() []string {
	return []string{
		"2016-02-03", "2016-11-14", "2017-06-30", "2018-06-30", "2019-03-30", "2019-10-01", "2020-03-13",
		"2020-05-31-preview",
		"2020-09-30",
		"2021-04-12",
	}
}

func (o HTTPOptions) withDefaults() HTTPOptions {
	o.HeaderTimeout = cmp.Or(max(o.HeaderTimeout, 0), ConnectLimit)
	o.RequestTimeout = cmp.Or(max(o.RequestTimeout, 0), 2*time.Minute)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 4*time.Minute)
	o.MaxHeader = cmp.Or(max(o.MaxHeader, 0), 64<<10)
	if o.APIVersions == nil {
		o.APIVersions = KnownAPIVersions()
	}
	o.APIVersions = slices.Clone(o.APIVersions)
	return o
}
