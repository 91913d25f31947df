package hub

import (
	"cmp"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// knownAPIVersions returns the API versions that known devices request.
func knownAPIVersions() []string {
	return []string{
		"2016-02-03", "2016-11-14", "2017-06-30", "2018-06-30", "2019-03-30", "2019-10-01", "2020-03-13",
		"2020-05-31-preview",
		"2020-09-30",
		"2021-04-12",
	}
}

func httpDefaults(o hubdata.HTTPOptions) hubdata.HTTPOptions {
	o.HeaderTimeout = cmp.Or(max(o.HeaderTimeout, 0), ConnectLimit)
	o.RequestTimeout = cmp.Or(max(o.RequestTimeout, 0), 2*time.Minute)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 4*time.Minute)
	o.MaxHeader = cmp.Or(max(o.MaxHeader, 0), 64<<10)
	if o.APIVersions == nil {
		o.APIVersions = knownAPIVersions()
	}
	o.APIVersions = slices.Clone(o.APIVersions)
	return o
}
