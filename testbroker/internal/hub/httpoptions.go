package hub

import (
	"cmp"
	"slices"
	"time"
)

// HTTPOptions are the settings of HTTP connections. The zero value of each field means its default.
type HTTPOptions struct {
	// HeaderTimeout is how long a client may take to send the head of a request. Default: 1 minute.
	HeaderTimeout time.Duration
	// RequestTimeout is how long a client may take to send a request with its body. Default: 2
	// minutes.
	RequestTimeout time.Duration
	// IdleTimeout is how long a connection may be without a request. Default: 4 minutes; negative: no
	// limit.
	IdleTimeout time.Duration
	// MaxHeader is the size limit of the head of a request in bytes. Default: 64 KB.
	MaxHeader int
	// NoHTTP2 disables HTTP/2: TLS clients get HTTP/1.1.
	NoHTTP2 bool
	// APIVersions are the accepted values of the query parameter api-version. Default:
	// [KnownAPIVersions].
	APIVersions []string
	// StrictValues refuses messages that have property values with characters other than those allowed
	// in names: ASCII letters and digits and ! # $ % & ' * + - . ^ _ ` | ~. The service's documents
	// say that it accepts no others.
	StrictValues bool
	// TextErrors gives error bodies the older form, "ErrorCode:DeviceNotFound;..." instead of JSON in
	// JSON.
	TextErrors bool
	// RetryAfterDate writes Retry-After as a date instead of a number of seconds.
	RetryAfterDate bool
}

// KnownAPIVersions returns the API versions that known devices request.
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
