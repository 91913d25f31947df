package http_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	hubhttp "github.com/hubline-iot/hubline/transport/http"
)

// polls counts the polls for cloud-to-device messages.
func (h *scripted) polls() int {
	n := 0
	for _, s := range h.seen() {
		if s.method == http.MethodGet {
			n++
		}
	}
	return n
}

// deliveries returns how often the oldest cloud-to-device message was delivered.
func (h *scripted) deliveries() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inbox[0].delivered
}

// polling returns options with this PollInterval.
func (h *scripted) polling(every time.Duration) *hubhttp.Options {
	o := h.options()
	o.PollInterval = every
	return o
}

// By default, polls are as far apart as the service recommends. Without a subscription there are
// none. After a cloud-to-device message the others follow at once.
func TestPollsForMessages(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		r := h.start(t, h.options())
		time.Sleep(time.Hour)
		require.Zero(t, h.polls())
		require.NoError(t, r.subscribe())
		require.Equal(t, 1, h.polls())
		time.Sleep(24*time.Minute + 59*time.Second)
		require.Equal(t, 1, h.polls())
		for i := range 3 {
			h.message(fmt.Sprint("c-", i), nil)
		}
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"c-0", "c-1", "c-2"}, r.bodies())
		require.Equal(t, 1+4, h.polls(), "until there is none")
		for _, d := range r.delivered() {
			r.settle(d.ref, transport.OutcomeAccept)
		}
		time.Sleep(25 * time.Minute)
		require.Equal(t, 6, h.polls())

		r.Do(&transport.Request{ID: 9, Op: transport.OpSubscribe})
		time.Sleep(time.Hour)
		require.Equal(t, 6, h.polls(), "nobody wants them any more")
	})
}

// Each OpSubscribe gets a reply, also if the next one revokes it, or if there is no room for
// messages.
func TestEachSubscriptionIsRepliedTo(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		for range 4 {
			h.message("x", nil)
		}
		r := h.start(t, h.options())
		r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
		r.Do(&transport.Request{ID: 2, Op: transport.OpSubscribe})
		r.Do(&transport.Request{ID: 3, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
		synctest.Wait()
		require.Len(t, r.delivered(), 4)
		r.Do(&transport.Request{ID: 4, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		for id := uint32(1); id <= 4; id++ {
			err, replied := r.replies[id]
			require.True(t, replied, id)
			require.NoError(t, err)
		}
	})
}

// A cloud-to-device message with all possible properties.
func TestPropertiesOfADelivery(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("body", map[string]string{
			"IoTHub-MessageId": "id", "iothub-correlationid": "corr", "iothub-contenttype": "text/plain",
			"iothub-contentencoding": "utf-8", "DT-Subject": "thermostat1",
			"iothub-expiry": "2031-02-03T04:05:06.7890000Z", "iothub-creationtimeutc": "Mon, 03 Feb 2031 04:05:06 GMT",
			"iothub-userid": "me", "iothub-messageschema": "s", "iothub-interface-id": "i", "iothub-ack": "full",
			"iothub-connection-device-id": "d", "iothub-connection-module-id": "m", "iothub-app-": "no name",
			"iothub-enqueuedtime": "2031-01-01T00:00:00Z", "iothub-app-Level": "high", "iothub-app-a": "",
			"iothub-to": "/devices/dev-1/messages/deviceBound",
		})
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		require.Equal(t, transport.Message{
			ID: "id", CorrelationID: "corr", ContentType: "text/plain", ContentEncoding: "utf-8", Component: "thermostat1",
			Body:    []byte("body"),
			Expires: time.Date(2031, 2, 3, 4, 5, 6, 789e6, time.UTC), Created: time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC),
			System: &transport.SystemProperties{To: "/devices/dev-1/messages/deviceBound", UserID: "me", Schema: "s",
				InterfaceID: "i", ConnectionDeviceID: "d", ConnectionModuleID: "m"},
			Properties: []transport.Property{{Name: "a", Value: ""}, {Name: "iothub-ack", Value: "full"},
				{Name: "iothub-enqueuedtime", Value: "2031-01-01T00:00:00Z"}, {Name: "level", Value: "high"}},
		}, r.delivered()[0].msg)
		require.False(t, r.delivered()[0].again)
	})
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("body", nil)
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		require.Equal(t, transport.Message{Body: []byte("body")}, r.delivered()[0].msg)
	})
}

// Complete, reject and abandon carry the lock in the path and in If-Match.
func TestSettling(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		for i := range 3 {
			h.message(fmt.Sprint(i), nil)
		}
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		d := r.delivered()
		r.settle(d[0].ref, transport.OutcomeAccept)
		r.settle(d[0].ref, transport.OutcomeAccept) // a second settlement has no effect
		r.settle(d[1].ref, transport.OutcomeReject)
		r.settle([]byte("no ref of ours"), transport.OutcomeAccept)
		r.settle(d[2].ref, transport.OutcomeRelease)
		require.Equal(t, []string{"complete 1", "reject 2"}, h.verdicts())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"complete 1", "reject 2", "abandon 3"}, h.verdicts())
		require.Equal(t, 1, h.Undelivered())
		for _, s := range h.seen() {
			if s.method == http.MethodDelete {
				lock := s.path[strings.LastIndex(s.path, "/")+1:]
				require.Equal(t, `"`+lock+`"`, s.header.Get("If-Match"))
			}
		}
		time.Sleep(26 * time.Minute)
		require.Equal(t, "2", string(r.delivered()[3].msg.Body))
		require.True(t, r.delivered()[3].again)
	})
}

// The session holds at most Config.Queue unsettled messages.
func TestNoMoreUnsettledThanTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		for i := range 10 {
			h.message(fmt.Sprint(i), nil)
		}
		r := h.start(t, h.polling(time.Second))
		require.NoError(t, r.subscribe())
		time.Sleep(10 * time.Second)
		require.Len(t, r.delivered(), 4)
		looks := h.polls()
		r.settle(r.delivered()[1].ref, transport.OutcomeAccept)
		require.Len(t, r.delivered(), 5, "the next one comes at once")
		require.Equal(t, looks+1, h.polls())
	})
}

// A message that the Sink does not take comes again a little later, not in a loop that uses up its
// deliveries.
func TestAMessageThatTheSinkDoesNotTake(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("x", nil)
		r := h.start(t, h.options())
		r.mu.Lock()
		r.refuse = true
		r.mu.Unlock()
		require.NoError(t, r.subscribe())
		time.Sleep(16 * time.Second)
		require.Equal(t, []string{"x", "x", "x", "x"}, r.bodies())
		require.Equal(t, []string{"abandon 1", "abandon 1", "abandon 1"}, h.verdicts())
		time.Sleep(2 * time.Minute)
		require.Less(t, len(r.bodies()), 10, "the hub gives up a message after ten deliveries")
	})
}

// Vector T15 of the Java SDK: a failed settlement of a cloud-to-device message is repeated. The SDK
// puts the message back into its queue; here the settlement is retried while the hub's lock lasts.
func TestAFailedSettlementIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("x", nil)
		fails, after := 3, ""
		h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.Method != http.MethodDelete || fails == 0 {
				return false
			}
			fails--
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			refuse(w, 503005, "ServerBusy")
			return true
		}
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		r.settle(r.delivered()[0].ref, transport.OutcomeAccept)
		require.Equal(t, 1, h.Undelivered())
		time.Sleep(7 * time.Second) // 1, 2 and 4 s
		synctest.Wait()
		require.Equal(t, []string{"complete 1"}, h.verdicts())
		require.Len(t, r.delivered(), 1)

		// If the hub is busy for longer than the lock lasts, it delivers the message again. The session
		// then repeats the settlement at once, without another delivery to the Sink.
		h.message("y", nil)
		h.change(func() { fails, after = 1, "61" })
		time.Sleep(25 * time.Minute)
		require.Len(t, r.delivered(), 2)
		r.settle(r.delivered()[1].ref, transport.OutcomeReject)
		h.change(func() { fails = 1 })
		time.Sleep(25 * time.Minute)
		require.Equal(t, []string{"complete 1"}, h.verdicts())
		h.change(func() { fails = 0 })
		time.Sleep(50 * time.Minute)
		synctest.Wait()
		require.Len(t, r.delivered(), 2, "the handler is asked once")
		require.Equal(t, []string{"complete 1", "reject 2"}, h.verdicts())
	})
}

// The handler is slower than the lock. A settlement that comes too late is sent with the next lock.
// A new delivery of a message that is still being handled is not reported again, and the settlement
// uses the new lock.
func TestALostLock(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("slow", nil)
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		time.Sleep(2 * time.Minute)
		r.settle(r.delivered()[0].ref, transport.OutcomeAccept)
		require.Equal(t, 1, h.Undelivered(), "the lock was lost")
		time.Sleep(25 * time.Minute)
		require.Zero(t, h.Undelivered())
		require.Len(t, r.delivered(), 1)

		h.message("slower", nil)
		for h.deliveries() < 2 {
			time.Sleep(time.Second)
		}
		synctest.Wait() // the session has the new lock
		require.Len(t, r.delivered(), 2)
		r.settle(r.delivered()[1].ref, transport.OutcomeAccept)
		require.Zero(t, h.Undelivered())
		require.Equal(t, []string{"complete 1", "complete 2"}, h.verdicts())

		h.message("given back late", nil)
		time.Sleep(25 * time.Minute)
		time.Sleep(2 * time.Minute)
		r.settle(r.delivered()[2].ref, transport.OutcomeRelease)
		time.Sleep(25 * time.Minute)
		require.Len(t, r.delivered(), 4, "a release is no verdict to remember")
	})
}

// The verdict comes while a poll has the message's next delivery. It is given under the new lock,
// and the message is not reported again.
func TestAVerdictDuringThePollForTheNextDelivery(t *testing.T) {
	for outcome, verdict := range map[transport.Outcome]string{transport.OutcomeAccept: "complete 1",
		transport.OutcomeReject: "reject 1"} {
		bubble(t, func(t *testing.T, h *scripted) {
			h.message("x", nil)
			var r *rig
			h.answer = func(_ http.ResponseWriter, q *http.Request, _ []byte) bool {
				if q.Method == http.MethodGet && h.polls() == 3 {
					require.Empty(t, h.verdicts())
					r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.delivered()[0].ref, Outcome: outcome})
				}
				return false
			}
			r = h.start(t, h.polling(70*time.Second))
			require.NoError(t, r.subscribe())
			time.Sleep(71 * time.Second)
			synctest.Wait()
			require.Equal(t, []string{verdict}, h.verdicts())
			require.Equal(t, []string{"x"}, r.bodies())
			var locks []string
			for _, q := range h.seen() {
				if q.method == http.MethodDelete {
					locks = append(locks, q.header.Get("If-Match"))
				}
			}
			require.Equal(t, []string{`"6f1a0000-0000-4000-8000-000000000002"`}, locks, "the second one")
		})
	}
}

// A hub that is busy when it is polled does not end the session: polling goes on with growing
// delays.
func TestABusyHubDeliversLater(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("x", nil)
		busy, after := true, ""
		h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.Method != http.MethodGet || !busy {
				return false
			}
			w.Header().Set("Retry-After", after)
			refuse(w, 429001, "ThrottlingException")
			return true
		}
		r := h.start(t, h.polling(time.Hour))
		require.NoError(t, r.subscribe())
		time.Sleep(16 * time.Second)
		require.Equal(t, 5, h.polls(), "at 0, 1, 3, 7 and 15 s")
		h.change(func() { after = "600" })
		time.Sleep(16 * time.Second)
		require.Equal(t, 6, h.polls())
		h.change(func() { busy = false })
		time.Sleep(9*time.Minute + 30*time.Second)
		require.Equal(t, 6, h.polls())
		time.Sleep(time.Minute)
		require.Equal(t, []string{"x"}, r.bodies())
	})
}

// A reset connection ends the session also if only polls use it.
func TestAnUnreachableHubIsFoundByAPoll(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		r := h.start(t, h.polling(10*time.Minute))
		require.NoError(t, r.subscribe())
		time.Sleep(2 * time.Minute) // all idle connections are closed
		h.network.Refuse(true)
		time.Sleep(7 * time.Minute)
		select {
		case <-r.ended:
			require.Fail(t, "who would know?")
		default:
		}
		time.Sleep(2 * time.Minute)
		r.requireLoss(transport.Network)
	})
}

// At the end of a session, unsettled messages are abandoned, so that the next session need not wait
// for their locks. Pending settlements are sent.
func TestCloseAbandonsUnsettledMessages(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		for i := range 3 {
			h.message(fmt.Sprint(i), nil)
		}
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.delivered()[1].ref, Outcome: transport.OutcomeAccept})
		r.close()
		got := h.verdicts()
		slices.Sort(got)
		require.Equal(t, []string{"abandon 1", "abandon 3", "complete 2"}, got)
		again := h.start(t, h.options())
		require.NoError(t, again.subscribe())
		require.Equal(t, []string{"0", "2"}, again.bodies())
	})
	bubble(t, func(t *testing.T, h *scripted) { // a hub that does not answer does not delay the end
		h.message("x", nil)
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		h.Silence()
		r.close()
	})
}

// A settlement in flight at the end of a session gets half a second, not longer.
func TestCloseWaitsForASlowHub(t *testing.T) {
	for delay, told := range map[time.Duration]bool{400 * time.Millisecond: true, 600 * time.Millisecond: false} {
		bubble(t, func(t *testing.T, h *scripted) {
			h.message("x", nil)
			h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				if r.Method != http.MethodDelete {
					return false
				}
				select {
				case <-time.After(delay):
					return false
				case <-r.Context().Done():
					return true
				}
			}
			r := h.start(t, h.options())
			require.NoError(t, r.subscribe())
			began := time.Now()
			r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.delivered()[0].ref, Outcome: transport.OutcomeAccept})
			r.close()
			require.Equal(t, min(delay, 500*time.Millisecond), time.Since(began))
			require.Equal(t, told, len(h.verdicts()) == 1, "%v", h.verdicts())
		})
	}
}

// A lock token is the hub's text. In the URL of a settlement it is one path segment.
func TestLockTokensAreEscaped(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("x", map[string]string{"ETag": `"a/b?c%d"`})
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		r.settle(r.delivered()[0].ref, transport.OutcomeAccept)
		all := h.seen()
		require.Equal(t, "/devices/dev-1/messages/deviceBound/a%2Fb%3Fc%25d", all[len(all)-1].path)
	})
}

// A session that ends because the telemetry connection was lost still settles cloud-to-device
// messages. A session that the hub has refused does not.
func TestCloseAfterALossOfTheOtherConnection(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("0", nil)
		h.message("1", nil)
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		require.Equal(t, 2, h.dialed())
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.delivered()[0].ref, Outcome: transport.OutcomeAccept})
		h.conns[0].Reset() // the telemetry connection
		r.requireLoss(transport.Network)
		require.Equal(t, []string{"complete 1", "abandon 2"}, h.verdicts())
		again := h.start(t, h.options())
		require.NoError(t, again.subscribe())
		require.Equal(t, []string{"1"}, again.bodies(), "without waiting for a lock")
	})
	bubble(t, func(t *testing.T, h *scripted) { // the other connection is silent: the end is not delayed for long
		h.message("0", nil)
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		h.conns[1].Hold(true)
		h.conns[0].Reset()
		began := time.Now()
		<-r.ended
		require.LessOrEqual(t, time.Since(began), 700*time.Millisecond)
		r.requireLoss(transport.Network)
	})
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("0", nil)
		gone := false
		h.answer = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			if gone {
				refuse(w, 404001, "DeviceNotFound")
			}
			return gone
		}
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		h.change(func() { gone = true })
		before := len(h.seen())
		r.send(0, numbered(1)...)
		r.requireLoss(transport.NotFound)
		require.Len(t, h.seen(), before+1)
	})
}

// Cloud-to-device messages and telemetry do not delay each other.
func TestASlowAnswerToTelemetryDelaysNoSettlement(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("x", nil)
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		h.HoldAnswers(true)
		r.send(0, numbered(1)...)
		synctest.Wait()
		r.settle(r.delivered()[0].ref, transport.OutcomeAccept)
		require.Equal(t, []string{"complete 1"}, h.verdicts())
		h.HoldAnswers(false)
	})
}

// Retry-After is respected up to an hour: one answer, which may not even come from the hub, must
// not stop the polls for years.
func TestPollsAreDelayedByAnHourAtMost(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("x", nil)
		busy := true
		h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.Method != http.MethodGet || !busy {
				return false
			}
			busy = false
			w.Header().Set("Retry-After", "99999999")
			refuse(w, 429001, "ThrottlingException")
			return true
		}
		r := h.start(t, h.polling(time.Minute))
		require.NoError(t, r.subscribe())
		time.Sleep(time.Hour - time.Second)
		require.Empty(t, r.bodies())
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"x"}, r.bodies())
	})
}

// An unexpected answer to a poll that is not about the device does not end the session: the poll is
// repeated, and telemetry still works. The reply to the subscription changes with the answer.
func TestAnUnexpectedAnswerToAPoll(t *testing.T) {
	soon, later := []int{400, 409, 412, 413, 415, 422, 428, 431}, []int{405, 417, 418, 426, 501, 505, 400001, 403010}
	for _, first := range []bool{true, false} {
		for _, status := range slices.Concat(soon, later) {
			t.Run(fmt.Sprint(status, " first ", first), func(t *testing.T) {
				bubble(t, func(t *testing.T, h *scripted) {
					odd := first
					h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
						if r.Method != http.MethodGet || !odd {
							return false
						}
						odd = false
						refuse(w, status, "")
						return true
					}
					r := h.start(t, h.polling(time.Hour))
					if err := r.subscribe(); first {
						require.ErrorIs(t, err, transport.Unsupported)
						require.Equal(t, transport.ScopeOperation, transport.Find(err).Scope)
					} else {
						require.NoError(t, err)
						h.change(func() { odd = true })
						time.Sleep(time.Hour)
						require.ErrorIs(t, r.subscribed(), transport.Unsupported)
					}
					h.message("x", nil)
					if slices.Contains(later, status) {
						time.Sleep(time.Hour - time.Second)
						require.Empty(t, r.bodies())
					}
					time.Sleep(2 * time.Second)
					require.Equal(t, []string{"x"}, r.bodies())
					require.NoError(t, r.subscribed())
					r.send(0, numbered(1)...)
					synctest.Wait()
					require.NoError(t, r.results()[0])
				})
			})
		}
	}
	bubble(t, func(t *testing.T, h *scripted) { // repeated endlessly: at most one poll per minute
		h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.Method == http.MethodGet {
				w.WriteHeader(http.StatusConflict)
				return true
			}
			return false
		}
		r := h.start(t, h.polling(time.Second))
		require.ErrorIs(t, r.subscribe(), transport.Unsupported)
		time.Sleep(time.Hour)
		require.InDelta(t, 66, h.polls(), 2)
		r.send(0, numbered(1)...)
		synctest.Wait()
		require.NoError(t, r.results()[0])
	})
}

// A hub that delivers a message again although it is locked or settled is not polled in a loop.
func TestAHubThatRepeatsAMessage(t *testing.T) {
	for _, settled := range []bool{false, true} {
		bubble(t, func(t *testing.T, h *scripted) {
			n := 0
			h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				switch r.Method {
				case http.MethodGet:
					if n++; n > 500 { // enough to detect a loop
						return false
					}
					w.Header().Set("ETag", fmt.Sprintf(`"%d"`, n))
					w.Header().Set("iothub-sequencenumber", "99")
					_, _ = w.Write([]byte("x"))
				case http.MethodDelete:
					refuse(w, 412002, "DeviceMessageLockLost")
				default:
					return false
				}
				return true
			}
			r := h.start(t, h.polling(25*time.Minute))
			r.Do(&transport.Request{ID: 7, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			require.Equal(t, []string{"x"}, r.bodies())
			if settled {
				r.settle(r.delivered()[0].ref, transport.OutcomeAccept)
			}
			time.Sleep(10 * time.Minute)
			require.InDelta(t, 2+6+9, h.polls(), 2, "after 1, 2, 4 s and so on, up to a minute")
			require.Equal(t, []string{"x"}, r.bodies())

			h.change(func() { h.answer = nil }) // after a new message the next poll follows at once
			for i := range 3 {
				h.message(fmt.Sprint("new-", i), nil)
			}
			time.Sleep(time.Minute)
			require.Contains(t, r.bodies(), "new-0")
			require.Contains(t, r.bodies(), "new-2")
		})
	}
}

// Answers to a settlement. The official SDKs throw for all but 200 and 204 and do not retry, so the
// handler gets the cloud-to-device message again. Here a transient refusal is retried while the
// lock lasts, a lost lock or an unexpected answer delays the settlement until the next one, and
// every 2xx is a success. An answer about the identity ends the session.
func TestAnswersToASettlement(t *testing.T) {
	const done, again, next = "done", "told again", "told with the next lock"
	ends := map[int]transport.Kind{401: transport.Unauthorized, 403012: transport.Forbidden, 404001: transport.NotFound}
	for status, want := range map[int]string{
		200: done, 201: done, 202: done, 204: done,
		403: again, 408: again, 429: again, 499: again, 500: again, 502: again, 503: again, 504: again, 507: again,
		599: again,
		301: next, 302: next, 400: next, 404: next, 405: next, 409: next, 412: next, 413: next, 418: next, 426: next,
		501: next,
		401: "", 403012: "", 404001: "",
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *scripted) {
				asked := 0
				h.answer = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
					if r.Method != http.MethodDelete {
						return false
					}
					if asked++; asked > 1 && want != "" { // or another token is used
						return false
					}
					if want == done {
						h.route(discard{http.Header{}}, r, body)
					}
					refuse(w, status, "x")
					return true
				}
				h.message("x", nil)
				r := h.start(t, h.polling(time.Minute))
				require.NoError(t, r.subscribe())
				r.settle(r.delivered()[0].ref, transport.OutcomeAccept)
				if want == "" {
					r.requireLoss(ends[status])
					return
				}
				time.Sleep(50 * time.Second) // the lock lasts for a minute
				synctest.Wait()
				require.Equal(t, want != next, h.Undelivered() == 0)
				time.Sleep(3 * time.Minute)
				require.Equal(t, []string{"complete 1"}, h.verdicts())
				require.Equal(t, []string{"x"}, r.bodies(), "the handler is asked once")
				h.change(func() { require.Equal(t, want == done, asked == 1) })
			})
		})
	}
}

// A message that is too long to be read is rejected, and the next one comes.
func TestATooLongMessageIsRejected(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message(strings.Repeat("x", 300<<10), nil)
		h.message("next", nil)
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		synctest.Wait()
		require.Equal(t, []string{"reject 1"}, h.verdicts())
		time.Sleep(time.Second) // the hub might have refused the verdict
		synctest.Wait()
		require.Equal(t, []string{"next"}, r.bodies())
		require.Equal(t, 3, h.polls())
	})
}

// A hub that keeps such a message is not asked for it without end.
func TestATooLongMessageThatIsNotTakenBackCausesNoSpin(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message(strings.Repeat("x", 300<<10), nil)
		h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.Method != http.MethodDelete {
				return false
			}
			h.message(strings.Repeat("x", 300<<10), nil) // the same one, as far as this test goes
			refuse(w, 412, "x")
			return true
		}
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		time.Sleep(10 * time.Minute)
		require.Less(t, h.polls(), 40)
		require.Empty(t, r.bodies())
	})
}

// A message whose acceptance came too late waits again at the hub. It is accepted soon, and not
// reported again.
func TestALateAcceptanceIsRepeatedSoon(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("a", nil)
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		synctest.Wait()
		require.Len(t, r.delivered(), 1)
		time.Sleep(61 * time.Second) // the lock has expired
		r.settle(r.delivered()[0].ref, transport.OutcomeAccept)
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{"complete 1"}, h.verdicts())
		require.Len(t, r.delivered(), 1)
		require.Equal(t, 4, h.polls())
	})
}

// A hub that refuses every acceptance is not polled over and over.
func TestALateAcceptanceThatIsAlwaysRefusedDoesNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("a", nil)
		h.answer = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.Method == http.MethodDelete {
				refuse(w, 412002, "DeviceMessageLockLost")
			}
			return r.Method == http.MethodDelete
		}
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		synctest.Wait()
		r.settle(r.delivered()[0].ref, transport.OutcomeAccept)
		time.Sleep(time.Hour)
		require.Less(t, h.polls(), 80)
		require.Len(t, r.delivered(), 1)
	})
}

// The idle connection was closed when a verdict comes right before Close. It goes over another
// connection; a release is not worth one.
func TestAVerdictBeforeCloseGetsAnotherConnection(t *testing.T) {
	for outcome, want := range map[transport.Outcome][]string{transport.OutcomeAccept: {"complete 1"},
		transport.OutcomeReject: {"reject 1"}, transport.OutcomeRelease: nil} {
		bubble(t, func(t *testing.T, h *scripted) {
			h.message("a", nil)
			o := h.options()
			o.IdleTimeout = 10 * time.Second
			r := h.start(t, o)
			require.NoError(t, r.subscribe())
			time.Sleep(30 * time.Second)
			r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.delivered()[0].ref, Outcome: outcome})
			r.close()
			require.Equal(t, want, h.verdicts())
		})
	}
}

// A connection that was cut may be cut again: the session ends without another one.
func TestAVerdictAfterACutGetsNoConnection(t *testing.T) {
	bubble(t, func(t *testing.T, h *scripted) {
		h.message("a", nil)
		r := h.start(t, h.options())
		require.NoError(t, r.subscribe())
		synctest.Wait()
		dialed := h.dialed()
		h.conns[1].Reset() // that of the messages
		r.Do(&transport.Request{Op: transport.OpSettle, Ref: r.delivered()[0].ref, Outcome: transport.OutcomeAccept})
		<-r.ended
		require.Empty(t, h.verdicts())
		require.Equal(t, dialed, h.dialed())
	})
}
