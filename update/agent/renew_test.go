package agent_test

import (
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// refused returns the error of a file server for a status.
func refused(status int) error {
	kind := map[int]transport.Kind{403: transport.Forbidden, 404: transport.NotFound, 410: transport.NotFound}[status]
	return &transport.Error{Kind: kind, Err: &transport.StatusError{Service: "storage", Status: status}}
}

// signs makes the service offer the file at another address.
func (r *rig) signs(signature string) {
	r.service.mu.Lock()
	defer r.service.mu.Unlock()
	o := *r.service.offer
	o.URLs = maps.Clone(o.URLs)
	const url = "https://files/wf-1/f0"
	o.URLs["f0"] = url + signature
	r.files.content[url+signature] = r.files.content[url]
	r.service.offer = &o
}

// A connection that delivers a part of the file ends; meanwhile the first address has expired.
func TestADownloadGoesOnAtANewAddress(t *testing.T) {
	for name, row := range map[string]struct {
		status int
		inRead bool // the refusal is an error of Read, as httprange has it
		early  bool // the service offers the new address before the old one is refused
	}{"forbidden": {status: 403}, "gone": {status: 410}, "in Read": {status: 403, inRead: true},
		"offered before": {early: true}, "offered before, in Read": {early: true, inRead: true, status: 403}} {
		t.Run(name, func(t *testing.T) {
			inRig(t, func(t *testing.T, r *rig) {
				r.offered("wf-1", "1.0", "a long image")
				r.files.body = func(n int, body io.Reader) io.ReadCloser {
					switch {
					case n == 1 && row.early:
						r.signs("?sig=2")
						r.service.wake <- struct{}{}
						time.Sleep(time.Second)
						if row.inRead {
							return flaky{io.LimitReader(body, 6), refused(row.status)}
						}
						fallthrough
					case n == 1:
						return flaky{io.LimitReader(body, 6), io.EOF}
					case n == 2 && row.inRead && !row.early:
						return flaky{strings.NewReader(""), refused(row.status)}
					}
					return io.NopCloser(body)
				}
				r.files.fail = func(n int) error {
					if n != 2 || row.early {
						return nil
					}
					r.signs("?sig=2")
					if row.inRead {
						return nil
					}
					return refused(row.status)
				}
				r.service.wake = make(chan struct{}, 1)
				r.runs(time.Minute)
				require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
				require.Equal(t, "a long image", r.device.installed[0])
				const url = "https://files/wf-1/f0"
				want := []string{url + "@0", url + "@6", url + "?sig=2@6"}
				if row.early {
					want = []string{url + "@0", url + "?sig=2@6"}
				}
				require.Equal(t, want, r.files.fetched)
				require.Len(t, r.service.reports, 4, "three states and the end: none for the new address")
			})
		})
	}
}

func TestANewAddressSurvivesAReset(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.waiting("download 0")
		r.options.Interval = time.Minute
		r.offered("wf-1", "1.0", "image")
		r.runs(time.Second)
		r.signs("?sig=2")
		saves := r.store.saves
		r.runs(3 * time.Minute)
		require.Equal(t, saves+3, r.store.saves, "the start, the addresses, the end: the same again are not written")
		r.device.block = nil
		r.service.offer = nil
		r.runs(time.Minute)
		require.Equal(t, []string{"https://files/wf-1/f0?sig=2@0"}, r.files.fetched)
	})
}

// The service is asked a bounded number of times, and never for an address that it has not given.
func TestAnAddressThatStaysRefusedFailsTheUpdate(t *testing.T) {
	for name, row := range map[string]struct {
		status  int
		answer  func(r *rig)
		queries int
	}{
		"the same again":   {403, func(*rig) {}, 2},
		"no offer":         {403, func(r *rig) { r.service.offer = nil }, 2},
		"each new one too": {403, func(r *rig) { r.signs(fmt.Sprint("?sig=", len(r.files.fetched))) }, 4},
		"another update":   {403, func(r *rig) { r.offered("wf-1", "1.1", "imagE"); r.signs("?sig=2") }, 2},
		"other hashes":     {403, func(r *rig) { r.offered("wf-1", "1.0", "imagE"); r.signs("?sig=2") }, 2},
		"not found":        {404, func(r *rig) { r.signs("?sig=2") }, 1},
		"too long":         {403, func(r *rig) { r.signs("?sig=" + strings.Repeat("2", agent.MaxURL)) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, func(t *testing.T, r *rig) {
				r.offered("wf-1", "1.0", "image")
				r.files.fail = func(int) error {
					row.answer(r)
					return refused(row.status)
				}
				r.runs(time.Minute)
				f := r.final()
				require.Equal(t, []uint32{agent.AreaDownload.Code(0)}, f.Result.Extended)
				require.Len(t, r.service.queries, row.queries)
			})
		})
	}
}

// A server that refuses each address after a few bytes does not make the device ask the service
// without a pause. Addresses that last for a while are asked for as often as the download needs.
func TestAddressesThatServeAFewBytesAreNotAskedForWithoutPauses(t *testing.T) {
	outcomes := map[time.Duration]agent.Outcome{0: agent.OutcomeFailed, time.Minute: agent.OutcomeSucceeded}
	for life, outcome := range outcomes {
		inRig(t, func(t *testing.T, r *rig) {
			r.offered("wf-1", "1.0", strings.Repeat("image", 20))
			r.files.fail = func(n int) error {
				if n%2 == 1 {
					return nil
				}
				r.signs(fmt.Sprint("?sig=", n))
				return refused(403)
			}
			r.service.check = func(int) error {
				time.Sleep(15 * time.Second) // is no part of the life of an address
				return nil
			}
			r.files.body = func(_ int, body io.Reader) io.ReadCloser {
				return flaky{io.MultiReader(io.LimitReader(body, 4), late{life}), io.EOF}
			}
			r.runs(time.Hour)
			require.Equal(t, outcome, r.final().Result.Outcome)
			if outcome == agent.OutcomeFailed {
				require.LessOrEqual(t, len(r.service.queries), 6)
			}
		})
	}
}

// A service that does not answer has not said that there is no new address.
func TestADownloadWaitsForTheServiceToAnswer(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.offered("wf-1", "1.0", "image")
		r.files.fail = func(n int) error {
			if n == 1 {
				r.signs("?sig=2")
				return refused(403)
			}
			return nil
		}
		r.service.check = func(n int) error {
			switch {
			case n > 1 && n < 4:
				return fault(transport.Unavailable)
			case n == 4:
				return fault(transport.Forbidden)
			}
			return nil
		}
		r.runs(3 * time.Hour)
		require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
	})
}

func TestAStoreWithoutRoomForNewAddressesDoesNotEndTheUpdate(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.offered("wf-1", "1.0", "image")
		r.store.room = 1000
		r.files.fail = func(n int) error {
			if n == 1 {
				r.signs("?sig=" + strings.Repeat("2", 2000))
				return refused(403)
			}
			return nil
		}
		r.runs(time.Minute)
		require.Equal(t, agent.OutcomeSucceeded, r.final().Result.Outcome)
	})
}
