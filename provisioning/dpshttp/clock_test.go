package dpshttp_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// behind returns a clock that is behind by d.
func behind(d time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(-d) }
}

func TestAClockThatIsNotSetLearnsTheTimeOfAVerifiedService(t *testing.T) {
	const year = 365 * 24 * time.Hour
	stopped := func() time.Time { return time.Unix(1000, 0) }
	for name, row := range map[string]struct {
		now       func() time.Time
		earliest  bool // the image was built a day ago
		plaintext bool
		ahead     time.Duration // of the service
		statuses  []int         // of the answers, until the device is assigned
		kind      transport.Kind
		off       time.Duration // of the credentials' clock afterwards
	}{
		"1970":                 {now: stopped, statuses: []int{401, 202, 200}},
		"1970, no TLS":         {now: stopped, plaintext: true, statuses: []int{401}, kind: transport.ClockUnset},
		"years ago":            {now: behind(9 * year), statuses: []int{401, 202, 200}},
		"years ago, no TLS":    {now: behind(9 * year), plaintext: true, statuses: []int{401}, kind: transport.ClockUnset},
		"before the image":     {now: behind(3 * time.Hour), earliest: true, statuses: []int{401, 202, 200}},
		"set, hours behind":    {now: behind(3 * time.Hour), statuses: []int{401}, kind: transport.ClockUnset},
		"set, minutes behind":  {now: behind(20 * time.Minute), statuses: []int{202, 200}, off: -20 * time.Minute},
		"set, hours ahead":     {now: behind(-3 * time.Hour), statuses: []int{202, 200}},
		"set, right":           {now: time.Now, statuses: []int{202, 200}},
		"the service is wrong": {now: behind(9 * year), ahead: 90 * year, statuses: []int{401}, kind: transport.ClockUnset},
	} {
		t.Run(name, func(t *testing.T) {
			withService(t, func(t *testing.T, d *testbroker.DPS, _ *testbroker.Hub, o *netopt.Options) {
				time.Sleep(60 * 24 * time.Hour) // the release of the module is long ago
				began := time.Now()
				if row.ahead != 0 {
					var err error
					d, err = testbroker.NewDPS(&testbroker.DPSOptions{Now: behind(-row.ahead)})
					require.NoError(t, err)
					defer func() { require.NoError(t, d.Close()) }()
					o = &netopt.Options{Dial: d.Dial(testbroker.PortHTTPS), TLS: d.ClientTLS()}
				}
				_, err := d.Enroll(dpsdata.Enrollment{ID: "reg-0001", PrimaryKey: groupKey, SecondaryKey: secondKey})
				require.NoError(t, err)
				if row.plaintext {
					o = &netopt.Options{Dial: d.Dial(testbroker.PortHTTP), Plaintext: true}
				} else {
					o.TLS.Time = time.Now // the build time would do
				}
				id := enrolled(d, "reg-0001")
				id.Sign, err = transport.SharedKey(groupKey)
				require.NoError(t, err)
				id.Now = row.now
				if row.earliest {
					id.Earliest = began.Add(-time.Hour)
				}
				c, err := provisioning.New(id, dpshttp.New(o), &provisioning.Options{Policy: retrypolicy.NoRetry{}})
				require.NoError(t, err)
				a, err := c.Register(t.Context())
				var statuses []int
				for _, r := range d.Requests() {
					statuses = append(statuses, r.Status)
				}
				require.Equal(t, row.statuses, statuses)
				if row.kind != 0 {
					require.Equal(t, row.kind, transport.KindOf(errors.Unwrap(errors.Unwrap(err))), "%v", err)
					return
				}
				require.NoError(t, err)
				require.Equal(t, 3*time.Second, time.Since(began), "no wait but that for the poll")
				require.InDelta(t, row.off, time.Until(c.Credentials(a).Now()), float64(2*time.Second))
			})
		})
	}
}

// Each attempt asks again, and the error of a request for the time is that of the attempt.
func TestAServiceThatIsNotReachedTellsNoTime(t *testing.T) {
	withService(t, func(t *testing.T, d *testbroker.DPS, _ *testbroker.Hub, o *netopt.Options) {
		id := enrolled(d, "reg-0001")
		var err error
		id.Sign, err = transport.SharedKey(groupKey)
		require.NoError(t, err)
		id.Now = func() time.Time { return time.Unix(1000, 0) }
		c, err := provisioning.New(id, dpshttp.New(o), &provisioning.Options{Policy: retrypolicy.NoRetry{}})
		require.NoError(t, err)
		_, err = c.Register(t.Context())
		require.Equal(t, transport.ClockUnset, transport.KindOf(errors.Unwrap(errors.Unwrap(err))),
			"the certificate is not valid yet by the device's clock: %v", err)
		require.Empty(t, d.Requests())

		require.NoError(t, d.Close())
		_, err = c.Register(t.Context())
		require.Equal(t, transport.Network, transport.KindOf(errors.Unwrap(errors.Unwrap(err))), "%v", err)
	})
}
