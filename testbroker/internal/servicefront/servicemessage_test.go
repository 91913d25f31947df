package servicefront_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

const feedbackPath = "/messages/serviceBound/feedback"

func TestBackEndsSendC2DOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := hubtest.NewHub(t, &testbroker.Options{C2D: testbroker.C2DOptions{Queue: 1}})
		hubtest.AddModule(t, h, "dev-1", "mod-1")
		p := hubtest.BackEnd(t, h, hubdata.RightServiceConnect)
		expiry := time.Now().Add(time.Minute).UTC()
		r := p.Post("/devices/dev-1/messages/deviceBound"+hubtest.Version, "hello", "iothub-messageid", "m-1",
			"iothub-ack", "Full",
			"iothub-expiry", expiry.Format(time.RFC3339), "iothub-app-unit", "C", "iothub-contenttype", "text/plain",
			"iothub-correlationid", "c-1", "iothub-userid", "ann", "iothub-contentencoding", "utf-8",
			"iothub-creationtimeutc", "2001-02-03T06:05:06+02:00", "iothub-interface-id", "urn:i", "dt-subject", "c")
		require.Equal(t, 204, r.StatusCode, r.Text)
		require.Equal(t, hubdata.C2D{
			MessageID: "m-1", CorrelationID: "c-1", UserID: "ann", ContentType: "text/plain", ContentEncoding: "utf-8",
			Ack: "full", Expiry: expiry, Properties: []hubdata.Property{{Name: "unit", Value: "C"}}, Body: []byte("hello"),
			CreationTime: time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC), InterfaceID: "urn:i", Component: "c",
		}, h.C2DLog("dev-1")[0].C2D)
		require.Equal(t, 1, h.PurgeC2D("dev-1"))
		require.Equal(t, 204, p.Post("/devices/dev-1/messages/devicebound"+hubtest.Version, "x", "iothub-expiry",
			expiry.Format(http.TimeFormat)).StatusCode)
		require.Equal(t, expiry.Truncate(time.Second), h.C2DLog("dev-1")[1].C2D.Expiry)
		require.Equal(t, 204, p.Post("/devices/dev-1/modules/mod-1/messages/devicebound"+hubtest.Version, "").StatusCode)
		require.Len(t, h.C2DLog("dev-1/mod-1"), 1)

		p.Post("/devices/dev-1/messages/devicebound"+hubtest.Version, "x").Refused(t, 403004)
		p.Post("/devices/nobody/messages/devicebound"+hubtest.Version, "x").Refused(t, 404001)
		p.Post("/devices/dev-1/modules/no/messages/devicebound"+hubtest.Version, "x").Refused(t, 404010)
		p.Post("/devices/dev-1/messages/devicebound"+hubtest.Version, "x", "iothub-ack", "maybe").Refused(t, 400004)
		p.Post("/devices/dev-1/messages/devicebound"+hubtest.Version, "x", "iothub-expiry", "soon").Refused(t, 400004)
		for _, at := range []string{"0000-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"} {
			for _, header := range []string{"iothub-expiry", "iothub-creationtimeutc"} {
				p.Post("/devices/dev-1/messages/devicebound"+hubtest.Version, "x", header, at).Refused(t, 400004)
			}
		}
		p.Post("/devices/dev-1/messages/devicebound"+hubtest.Version,
			strings.Repeat("x", hubdata.MaxC2D+1)).Refused(t, 413001)
		hubtest.BackEnd(t, h, hubdata.RightRegistryRead).Post("/devices/dev-1/messages/devicebound"+hubtest.Version,
			"x").Refused(t, 401003)
	})
}

// Feedback over HTTPS is locked until it is completed, abandoned, or its lock ends.
func TestFeedbackOverHTTP(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		p := hubtest.BackEnd(t, h, hubdata.RightServiceConnect)
		require.Equal(t, 204, p.Do("GET", feedbackPath+hubtest.Version, "").StatusCode)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: "m-1", Ack: "full"}))
		h.PurgeC2D("dev-1")
		get := func() (lock string) {
			t.Helper()
			r := p.Do("GET", feedbackPath+hubtest.Version, "")
			require.Equal(t, 200, r.StatusCode, r.Text)
			var all []struct{ OriginalMessageID string }
			require.NoError(t, json.Unmarshal([]byte(r.Text), &all))
			require.Equal(t, "m-1", all[0].OriginalMessageID)
			require.Equal(t, 204, p.Do("GET", feedbackPath+hubtest.Version, "").StatusCode, "it is locked")
			return strings.Trim(r.Header.Get("ETag"), `"`)
		}
		lock := get()
		require.Equal(t, 204, p.Post(feedbackPath+"/"+lock+"/abandon"+hubtest.Version, "").StatusCode)
		p.Do("DELETE", feedbackPath+"/"+lock+hubtest.Version, "").Refused(t, 412002)
		lock = get()
		time.Sleep(time.Minute)
		p.Do("DELETE", feedbackPath+"/"+lock+hubtest.Version, "").Refused(t, 412002)
		require.Equal(t, 204, p.Do("DELETE", feedbackPath+"/"+strings.ToUpper(get())+hubtest.Version, "").StatusCode)
		time.Sleep(2 * time.Minute)
		require.Equal(t, 204, p.Do("GET", feedbackPath+hubtest.Version, "").StatusCode)
		hubtest.BackEnd(t, h, hubdata.RightDeviceConnect).Do("GET", feedbackPath+hubtest.Version, "").Refused(t, 401003)
	})
}

func TestFileNotificationsOverHTTP(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		device := hubtest.OverHTTP(t, h, d)
		l := hubtest.BeginUpload(device, "a.txt")
		hubtest.PutBlob(device, l, "content")
		require.Equal(t, 204, hubtest.EndUpload(device, hubtest.Ended(l.CorrelationID)).StatusCode)
		p := hubtest.BackEnd(t, h, hubdata.RightServiceConnect)
		r := p.Do("GET", "/messages/servicebound/fileNotifications"+hubtest.Version, "")
		require.Equal(t, 200, r.StatusCode)
		require.Contains(t, r.Text, `"blobName":"dev-1/a.txt"`)
		lock := strings.Trim(r.Header.Get("ETag"), `"`)
		require.Equal(t, 204, p.Do("DELETE", "/messages/servicebound/filenotifications/"+lock+hubtest.Version, "").StatusCode)
	})
}
