package amqpfront_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

const feedbackAddress = "/messages/serviceBound/feedback"

// record is a record of feedback.
type record struct {
	OriginalMessageID, StatusCode, Description, DeviceID, ModuleID, DeviceGenerationID string
	EnqueuedTimeUTC                                                                    time.Time
}

// noticesOn attaches a receiver of a back end. The library's own credit is one message.
func noticesOn(p *hubtest.Peer, address string, o *amqp.ReceiverOptions) *amqp.Receiver {
	p.T.Helper()
	if o == nil {
		o = &amqp.ReceiverOptions{}
	}
	if o.Credit == 0 {
		o.Credit = 100
	}
	r, err := p.Session().NewReceiver(p.T.Context(), address, o)
	require.NoError(p.T, err)
	return r
}

// feedback receives one message of feedback, whose body is an array of one record.
func feedback(t *testing.T, r *amqp.Receiver) (*amqp.Message, record) {
	t.Helper()
	m, err := r.Receive(hubtest.Soon(t), nil)
	require.NoError(t, err)
	var all []record
	require.Len(t, m.Data, 1)
	require.NoError(t, json.Unmarshal(m.GetData(), &all))
	require.Len(t, all, 1)
	return m, all[0]
}

// silent requires that nothing arrives for a second.
func silent(t *testing.T, r *amqp.Receiver) {
	t.Helper()
	_, err := r.Receive(hubtest.Soon(t), nil)
	require.ErrorIs(t, err, context.DeadlineExceeded, "nothing may arrive")
}

// A device ends C2D messages in each way, and the sender gets the outcomes that it asked for.
func TestFeedbackOverAMQP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d, policy := newService(t, nil)
		r := noticesOn(loginService(t, h, policy), feedbackAddress, nil)
		link := hubtest.LoginAMQP(t, h, d).C2dMessages(d, nil)
		for _, ack := range []string{"", "none", "positive", "negative", "full"} {
			for name, end := range map[string]func(m *amqp.Message) error{
				"Success":  func(m *amqp.Message) error { return link.AcceptMessage(t.Context(), m) },
				"Rejected": func(m *amqp.Message) error { return link.RejectMessage(t.Context(), m, nil) },
			} {
				time.Sleep(time.Second)
				require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: "m-" + ack + name, Ack: ack}))
				m, err := link.Receive(t.Context(), nil)
				require.NoError(t, err)
				time.Sleep(time.Second)
				at := time.Now().UTC() // of the outcome
				require.NoError(t, end(m))
				if ack == "full" || ack == "positive" && name == "Success" || ack == "negative" && name == "Rejected" {
					notice, f := feedback(t, r)
					require.Equal(t, record{"m-" + ack + name, name, name, "dev-1", "", d.GenerationID, at}, f)
					requireNotice(t, notice, "application/vnd.microsoft.iothub.feedback.json")
					require.NoError(t, r.AcceptMessage(t.Context(), notice))
				}
			}
		}
		silent(t, r)
	})
}

// requireNotice requires what some clients of back ends read from each message.
func requireNotice(t *testing.T, m *amqp.Message, contentType string) {
	t.Helper()
	require.Len(t, m.DeliveryTag, 16)
	require.Equal(t, contentType, *m.Properties.ContentType)
	require.Equal(t, "hub.example.test", string(m.Properties.UserID))
	require.IsType(t, time.Time{}, m.Annotations["iothub-enqueuedtime"])
}

// Messages that expire, that nobody takes, or that are purged have an outcome too.
func TestFeedbackWithoutADevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d, policy := newService(t, &testbroker.Options{C2D: testbroker.C2DOptions{MaxDeliveries: 1}})
		mod := hubtest.AddModule(t, h, "dev-1", "mod-1")
		r := noticesOn(loginService(t, h, policy), "amqps://hub.example.test:5671/messages/servicebound/Feedback", nil)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: "1", Ack: "full", Expiry: time.Now().Add(time.Minute)}))
		time.Sleep(time.Minute)
		_, f := feedback(t, r)
		require.Equal(t, "Expired", f.StatusCode)
		require.Equal(t, time.Now().UTC(), f.EnqueuedTimeUTC)
		require.NoError(t, h.SendC2D("dev-1/mod-1", hubdata.C2D{MessageID: "2", Ack: "negative"}))
		require.Equal(t, 1, h.PurgeC2D("dev-1/mod-1"))
		_, f = feedback(t, r)
		require.Equal(t, record{"2", "Purged", "Purged", "dev-1", "mod-1", mod.GenerationID, time.Now().UTC()}, f)
		link := hubtest.LoginAMQP(t, h, d).C2dMessages(d, nil)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: "3", Ack: "full"}))
		m, err := link.Receive(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, link.ReleaseMessage(t.Context(), m))
		_, f = feedback(t, r)
		require.Equal(t, "DeliveryCountExceeded", f.StatusCode)
		require.NoError(t, h.SendC2D("dev-1/mod-1", hubdata.C2D{MessageID: "4", Ack: "full"}))
		require.NoError(t, h.RemoveDevice("dev-1"))
		_, f = feedback(t, r)
		require.Equal(t, record{"4", "Purged", "Purged", "dev-1", "mod-1", mod.GenerationID, time.Now().UTC()}, f)
	})
}

// A notice that is not settled, released or modified comes again, ten times, and lives for an hour.
func TestLocksOfNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, policy := newService(t, nil)
		add := func(id string) {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: id, Ack: "full"}))
			require.Equal(t, 1, h.PurgeC2D("dev-1"))
		}
		p := loginService(t, h, policy)
		r := noticesOn(p, feedbackAddress, nil)
		add("1")
		m, _ := feedback(t, r)
		require.NoError(t, r.ReleaseMessage(t.Context(), m))
		m, f := feedback(t, r)
		require.Equal(t, "1", f.OriginalMessageID)
		require.NoError(t, r.ModifyMessage(t.Context(), m, nil))
		m, _ = feedback(t, r)
		require.Equal(t, uint8(2), m.Annotations["iothub-deliverycount"])
		time.Sleep(time.Minute - 2*time.Second)
		silent(t, r)
		time.Sleep(time.Second)
		again, _ := feedback(t, r)
		require.NotEqual(t, m.DeliveryTag, again.DeliveryTag)
		require.NoError(t, r.Close(t.Context()))
		r = noticesOn(p, feedbackAddress, nil)
		for range 6 {
			m, f = feedback(t, r)
			require.Equal(t, "1", f.OriginalMessageID)
			require.NoError(t, r.ReleaseMessage(t.Context(), m))
		}
		silent(t, r)
		require.NoError(t, r.Close(t.Context()))
		add("2")
		time.Sleep(30 * time.Minute)
		add("3")
		time.Sleep(30 * time.Minute)
		_, f = feedback(t, noticesOn(p, feedbackAddress, nil))
		require.Equal(t, "3", f.OriginalMessageID, "the other has expired")
	})
}

// In receive mode "second" the hub answers the outcome with the same. A lock that has ended is
// lost.
func TestOutcomesOfNoticesAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, policy := newService(t, nil)
		p := loginService(t, h, policy)
		r := noticesOn(p, feedbackAddress, &amqp.ReceiverOptions{SettlementMode: new(amqp.ReceiverSettleModeSecond)})
		for range 3 {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: "full"}))
		}
		require.Equal(t, 3, h.PurgeC2D("dev-1"))
		m, _ := feedback(t, r)
		require.NoError(t, r.AcceptMessage(t.Context(), m))
		m, _ = feedback(t, r)
		require.NoError(t, r.RejectMessage(t.Context(), m, nil))
		m, _ = feedback(t, r)
		time.Sleep(time.Minute + time.Second)
		require.Equal(t, "com.microsoft:message-lock-lost", hubtest.Condition(t, r.AcceptMessage(t.Context(), m)))
		m, _ = feedback(t, r)
		require.NoError(t, r.AcceptMessage(t.Context(), m))
		silent(t, r)

		settled := noticesOn(p, feedbackAddress,
			&amqp.ReceiverOptions{RequestedSenderSettleMode: new(amqp.SenderSettleModeSettled)})
		require.NoError(t, r.Close(t.Context()))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: "full"}))
		require.Equal(t, 1, h.PurgeC2D("dev-1"))
		feedback(t, settled)
		time.Sleep(2 * time.Minute)
		silent(t, settled)
	})
}

// Several receivers share the notices, and one without credit does not hold up the others.
func TestReceiversShareNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, policy := newService(t, nil)
		p := loginService(t, h, policy)
		stopped := noticesOn(p, feedbackAddress, &amqp.ReceiverOptions{Credit: -1})
		a, b := noticesOn(p, feedbackAddress, nil), noticesOn(p, feedbackAddress, nil)
		synctest.Wait() // for their credit
		for range 4 {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: "full"}))
		}
		h.PurgeC2D("dev-1")
		for range 2 {
			feedback(t, a)
			feedback(t, b)
		}
		require.NoError(t, a.Close(t.Context()))
		for range 2 {
			feedback(t, b)
		}
		require.NoError(t, stopped.Close(t.Context()))
		require.NoError(t, p.Conn.Close())
		r := noticesOn(loginService(t, h, policy), feedbackAddress, nil)
		for range 4 {
			feedback(t, r)
		}
	})
}

func TestFileNotificationsOverAMQP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d, policy := newService(t, nil)
		device := hubtest.OverHTTP(t, h, d)
		for address, c := range map[string]struct{ name, escaped string }{
			"/messages/serviceBound/filenotifications":      {"logs/a b.txt", "logs/a%20b.txt"},
			"messages/servicebound/fileuploadnotifications": {"b", "b"},
		} {
			name := c.name
			at := time.Now().UTC()
			l := hubtest.BeginUpload(device, name)
			hubtest.PutBlob(device, l, "content")
			require.Equal(t, 204, hubtest.EndUpload(device, hubtest.Ended(l.CorrelationID)).StatusCode)
			failed := strings.Replace(hubtest.Ended(hubtest.BeginUpload(device, name).CorrelationID), "true", "false", 1)
			require.Equal(t, 204, hubtest.EndUpload(device, failed).StatusCode)
			r := noticesOn(loginService(t, h, policy), address, nil)
			m, err := r.Receive(hubtest.Soon(t), nil)
			require.NoError(t, err)
			requireNotice(t, m, "application/vnd.microsoft.iothub.filenotification.json")
			var f map[string]any
			require.NoError(t, json.Unmarshal(m.GetData(), &f))
			require.Equal(t, map[string]any{
				"deviceId": "dev-1", "blobName": "dev-1/" + name, "blobSizeInBytes": 7.0,
				"blobUri":         "https://store.hub.example.test/uploads/dev-1/" + c.escaped,
				"lastUpdatedTime": at.Format("2006-01-02T15:04:05.0000000Z"),
				"enqueuedTimeUtc": at.Format("2006-01-02T15:04:05.0000000Z"),
			}, f)
			require.NoError(t, r.AcceptMessage(t.Context(), m))
			silent(t, r)
			require.NoError(t, r.Close(t.Context()))
		}
	})
}

// A notice above the receiver's limit of sizes waits for another receiver, and holds up none.
func TestNoticesAboveTheLimitWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, policy := newService(t, nil)
		p := loginService(t, h, policy)
		r := noticesOn(p, feedbackAddress, nil)
		add := func(id string) {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: id, Ack: "full"}))
			require.Equal(t, 1, h.PurgeC2D("dev-1"))
		}
		add("1")
		m, _ := feedback(t, r)
		require.NoError(t, r.AcceptMessage(t.Context(), m))
		require.NoError(t, r.Close(t.Context()))
		encoded, err := m.MarshalBinary()
		require.NoError(t, err)
		limit := uint64(len(encoded) + hubdata.MaxMessageID/2)
		r = noticesOn(p, feedbackAddress, &amqp.ReceiverOptions{MaxMessageSize: limit})
		large := strings.Repeat("x", hubdata.MaxMessageID)
		add(large)
		add("2")
		m, f := feedback(t, r)
		require.Equal(t, "2", f.OriginalMessageID)
		require.NoError(t, r.AcceptMessage(t.Context(), m))
		silent(t, r)
		_, f = feedback(t, noticesOn(p, feedbackAddress, nil))
		require.Equal(t, large, f.OriginalMessageID)
	})
}

// Links of notices need the right of back ends and have one direction. Reset empties the queues.
func TestLinksOfNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d, policy := newService(t, nil)
		_, err := hubtest.LoginAMQP(t, h, d).Session().NewReceiver(t.Context(), feedbackAddress, nil)
		require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, err))
		p := loginService(t, h, policy)
		_, err = p.Session().NewSender(t.Context(), feedbackAddress, nil)
		require.Equal(t, "amqp:not-allowed", hubtest.Condition(t, err))
		noticesOn(p, feedbackAddress, nil)
		require.Equal(t, 1, h.DetachLinks("", fault.LinkFeedback, hubdata.AMQPError{}))
		h.Inject(fault.Fault{Kind: fault.RefuseAttach, Link: fault.LinkFileNotification, Condition: "amqp:not-found"})
		noticesOn(p, feedbackAddress, nil)
		_, err = p.Session().NewReceiver(t.Context(), "/messages/servicebound/filenotifications", nil)
		require.Equal(t, "amqp:not-found", hubtest.Condition(t, err))

		require.NoError(t, p.Conn.Close())
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: "full"}))
		require.Equal(t, 1, h.PurgeC2D("dev-1"))
		h.Reset()
		silent(t, noticesOn(loginService(t, h, policy), feedbackAddress, nil))
	})
}
