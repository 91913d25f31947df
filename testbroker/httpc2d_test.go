package testbroker_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

const inbound = "/devices/dev-1/messages/devicebound"

// receive requests a C2D message and returns it with its lock token.
func (p *poster) receive() (reply, string) {
	r := p.do("GET", inbound+version, "")
	require.Equal(p.t, 200, r.StatusCode, r.body)
	tag := r.Header.Get("ETag")
	require.Regexp(p.t, `^"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"$`, tag)
	return r, strings.Trim(tag, `"`)
}

func TestC2DMessagesOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		p := overHTTP(t, h, d)
		require.Equal(t, 204, p.do("GET", inbound+version, "").StatusCode)

		expiry := time.Date(2000, 1, 1, 5, 0, 0, 0, time.UTC)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{
			MessageID: "1", CorrelationID: "c", UserID: "u", ContentType: "text/plain", ContentEncoding: "utf-8", Ack: "full",
			Expiry: expiry,
			Properties: []hubdata.Property{
				{Name: "color", Value: "blue"},
				{Name: "no name", Value: "x"},
				{Name: "empty", Value: ""},
			}, Body: []byte("reboot"),
		}))
		r, lock := p.receive()
		require.Equal(t, "reboot", r.body)
		for name, want := range map[string]string{
			"iothub-messageid": "1", "iothub-correlationid": "c", "iothub-userid": "u", "iothub-contenttype": "text/plain",
			"iothub-contentencoding": "utf-8", "iothub-ack": "full", "iothub-expiry": "2000-01-01T05:00:00.0000000Z",
			"iothub-app-color": "blue",
			"iothub-to":        "/devices/dev-1/messages/devicebound", "iothub-sequencenumber": "1", "iothub-deliverycount": "0",
			"iothub-enqueuedtime": "2000-01-01T00:00:00.0000000Z",
		} {
			require.Equal(t, want, r.Header.Get(name), name)
		}
		require.Contains(t, r.Header, "Iothub-App-Empty")
		require.Equal(t, 204, p.do("GET", inbound+version, "").StatusCode, "it is locked")
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.Invisible))

		// Wrong tokens.
		p.do("DELETE", inbound+"/"+strings.Repeat("0", 36)+version, "").refused(t, 412002)
		p.do("DELETE", inbound+"/"+lock+version, "", "If-Match", `"other"`).refused(t, 412001)
		p.do("POST", inbound+"/other/abandon"+version, "").refused(t, 412002)
		p.do("POST", inbound+"/"+lock+version, "").refused(t, 405000)

		// Abandoned: it is delivered again, with another token.
		require.Equal(t, 204, p.do("POST", "/devices/dev-1/messages/deviceBound/"+lock+"/abandon"+version, "", "If-Match",
			`"`+lock+`"`).StatusCode)
		p.do("DELETE", inbound+"/"+lock+version, "").refused(t, 412002)
		r, second := p.receive()
		require.NotEqual(t, lock, second)
		require.Equal(t, "1", r.Header.Get("iothub-deliverycount"))

		// The lock ends.
		time.Sleep(time.Minute)
		p.do("DELETE", inbound+"/"+second+version, "").refused(t, 412002)
		_, third := p.receive()
		require.Equal(t, 204, p.do("DELETE", inbound+"/"+third+version, "", "If-Match", third).StatusCode)
		require.NoError(t, h.WaitC2D(t.Context(), "dev-1", hubdata.Completed, 1))
		p.do("DELETE", inbound+"/"+third+version, "").refused(t, 412002)

		// Rejected, with the parameter on either side of the version.
		for _, query := range []string{"?reject&api-version=2021-04-12", version + "&reject", version + "&reject=true"} {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: "negative"}))
			_, lock = p.receive()
			require.Equal(t, 204, p.do("DELETE", inbound+"/"+lock+query, "", "If-Match", "*").StatusCode)
		}
		require.Equal(t, 3, h.CountC2D("dev-1", hubdata.Rejected))
		log := h.C2DLog("dev-1")
		require.Equal(t, third, log[0].LockToken)
		require.Equal(t, 3, log[0].Deliveries)
		require.Equal(t, "Rejected", log[3].Feedback)
	})
}

func TestAbandonedTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, &testbroker.Options{C2D: testbroker.C2DOptions{MaxDeliveries: 2, TTL: time.Hour}})
		p := overHTTP(t, h, d)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{}))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{}))
		for range 2 {
			_, lock := p.receive()
			require.Equal(t, 204, p.do("POST", inbound+"/"+lock+"/abandon"+version, "").StatusCode)
		}
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.DeadLettered))
		r, _ := p.receive()
		require.Equal(t, "2", r.Header.Get("iothub-sequencenumber"))
		time.Sleep(time.Hour)
		require.Equal(t, 204, p.do("GET", inbound+version, "").StatusCode)
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.Expired))
	})
}

// A lock over HTTP does not belong to a connection: other subscriptions do not end it.
func TestC2DMessagesLockedOverHTTPAreNotPushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		p := overHTTP(t, h, d)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: "1"}))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: "2"}))
		_, lock := p.receive()
		w := login(t, h, d)
		w.subscribe(1, devicebound)
		m := w.c2dMessage()
		require.Contains(t, m.topic, "mid=2")
		require.Equal(t, 204, p.do("GET", inbound+version, "").StatusCode)
		w.conn.Close()
		synctest.Wait()
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.Invisible), "the one that was pulled")
		require.Equal(t, 204, p.do("DELETE", inbound+"/"+lock+version, "").StatusCode)
		_, lock = p.receive()
		require.Equal(t, 204, p.do("DELETE", inbound+"/"+lock+version, "").StatusCode)
		require.Equal(t, 2, h.CountC2D("dev-1", hubdata.Completed))
	})
}
