package httpfront_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestC2DMessagesOverHTTP(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.OverHTTP(t, h, d)
		require.Equal(t, 204, p.Do("GET", hubtest.Inbound+hubtest.Version, "").StatusCode)

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
		r, lock := hubtest.PullC2D(p)
		require.Equal(t, "reboot", r.Text)
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
		require.Equal(t, 204, p.Do("GET", hubtest.Inbound+hubtest.Version, "").StatusCode, "it is locked")
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.C2DInvisible))

		// Wrong tokens.
		p.Do("DELETE", hubtest.Inbound+"/"+strings.Repeat("0", 36)+hubtest.Version, "").Refused(t, 412002)
		p.Do("DELETE", hubtest.Inbound+"/"+lock+hubtest.Version, "", "If-Match", `"other"`).Refused(t, 412001)
		p.Do("POST", hubtest.Inbound+"/other/abandon"+hubtest.Version, "").Refused(t, 412002)
		p.Do("POST", hubtest.Inbound+"/"+lock+hubtest.Version, "").Refused(t, 405000)

		// Abandoned: it is delivered again, with another token.
		require.Equal(t, 204, p.Do("POST", "/devices/dev-1/messages/deviceBound/"+lock+"/abandon"+hubtest.Version, "",
			"If-Match",
			`"`+lock+`"`).StatusCode)
		p.Do("DELETE", hubtest.Inbound+"/"+lock+hubtest.Version, "").Refused(t, 412002)
		r, second := hubtest.PullC2D(p)
		require.NotEqual(t, lock, second)
		require.Equal(t, "1", r.Header.Get("iothub-deliverycount"))

		// The lock ends.
		time.Sleep(time.Minute)
		p.Do("DELETE", hubtest.Inbound+"/"+second+hubtest.Version, "").Refused(t, 412002)
		_, third := hubtest.PullC2D(p)
		require.Equal(t, 204, p.Do("DELETE", hubtest.Inbound+"/"+third+hubtest.Version, "", "If-Match", third).StatusCode)
		require.NoError(t, h.WaitC2D(t.Context(), "dev-1", hubdata.C2DCompleted, 1))
		p.Do("DELETE", hubtest.Inbound+"/"+third+hubtest.Version, "").Refused(t, 412002)

		// Rejected, with the parameter on either side of the version.
		for _, query := range []string{"?reject&api-version=2021-04-12", hubtest.Version + "&reject",
			hubtest.Version + "&reject=true"} {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: "negative"}))
			_, lock = hubtest.PullC2D(p)
			require.Equal(t, 204, p.Do("DELETE", hubtest.Inbound+"/"+lock+query, "", "If-Match", "*").StatusCode)
		}
		require.Equal(t, 3, h.CountC2D("dev-1", hubdata.C2DRejected))
		log := h.C2DLog("dev-1")
		require.Equal(t, third, log[0].LockToken)
		require.Equal(t, 3, log[0].Deliveries)
		require.Equal(t, "Rejected", log[3].Feedback)
	})
}

func TestAbandonedTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{C2D: testbroker.C2DOptions{MaxDeliveries: 2, TTL: time.Hour}})
		p := hubtest.OverHTTP(t, h, d)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{}))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{}))
		for range 2 {
			_, lock := hubtest.PullC2D(p)
			require.Equal(t, 204, p.Do("POST", hubtest.Inbound+"/"+lock+"/abandon"+hubtest.Version, "").StatusCode)
		}
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.C2DDeadLettered))
		r, _ := hubtest.PullC2D(p)
		require.Equal(t, "2", r.Header.Get("iothub-sequencenumber"))
		time.Sleep(time.Hour)
		require.Equal(t, 204, p.Do("GET", hubtest.Inbound+hubtest.Version, "").StatusCode)
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.C2DExpired))
	})
}

// A lock over HTTP does not belong to a connection: other subscriptions do not end it.
func TestC2DMessagesLockedOverHTTPAreNotPushed(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.OverHTTP(t, h, d)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: "1"}))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: "2"}))
		_, lock := hubtest.PullC2D(p)
		w := hubtest.Login(t, h, d)
		w.Subscribe(1, hubtest.DeviceBound)
		m := hubtest.ReadPublish(w)
		require.Contains(t, m.Topic, "mid=2")
		require.Equal(t, 204, p.Do("GET", hubtest.Inbound+hubtest.Version, "").StatusCode)
		w.Conn.Close()
		synctest.Wait()
		require.Equal(t, 1, h.CountC2D("dev-1", hubdata.C2DInvisible), "the one that was pulled")
		require.Equal(t, 204, p.Do("DELETE", hubtest.Inbound+"/"+lock+hubtest.Version, "").StatusCode)
		_, lock = hubtest.PullC2D(p)
		require.Equal(t, 204, p.Do("DELETE", hubtest.Inbound+"/"+lock+hubtest.Version, "").StatusCode)
		require.Equal(t, 2, h.CountC2D("dev-1", hubdata.C2DCompleted))
	})
}
