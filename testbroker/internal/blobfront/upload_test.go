package blobfront_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func blockOf(name string) string {
	return "&comp=block&blockid=" + url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(name)))
}

func TestUploadOfAFile(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.OverHTTP(t, h, d)
		began := time.Now()
		l := hubtest.BeginUpload(p, "logs/a b.txt")
		require.Equal(t, "store.hub.example.test", l.HostName)
		require.Equal(t, "uploads", l.ContainerName)
		require.Equal(t, "dev-1/logs/a b.txt", l.BlobName)
		require.True(t, strings.HasPrefix(l.SASToken, "?"), "as the service does")
		require.Equal(t, hubdata.UploadRunning, h.Uploads()[0].State)
		require.Equal(t, began.Add(time.Hour), h.Uploads()[0].Expires)

		r := hubtest.PutUpload(p, l, "", "content", "x-ms-blob-type", "BlockBlob", "Content-MD5", hubtest.MD5("content"),
			"x-ms-blob-content-type",
			"text/plain")
		require.Equal(t, 201, r.StatusCode, r.Text)
		require.Equal(t, hubtest.MD5("content"), r.Header.Get("Content-MD5"))
		require.NotEmpty(t, r.Header.Get("ETag"))
		require.Equal(t, "2019-12-12", r.Header.Get("x-ms-version"))
		time.Sleep(time.Minute)
		require.Equal(t, 204, hubtest.EndUpload(p, hubtest.Ended(l.CorrelationID)).StatusCode)

		require.NoError(t, h.WaitUploads(t.Context(), 1))
		require.Equal(t, []hubdata.Upload{{
			DeviceID: "dev-1", Blob: l.BlobName, CorrelationID: l.CorrelationID, Started: began, Expires: began.Add(time.Hour),
			State: hubdata.UploadSucceeded, Ended: began.Add(time.Minute), StatusCode: 201, StatusDescription: "Created",
			Size: 7,
		}}, h.Uploads())
		require.Equal(t, []string{l.BlobName}, h.Blobs())
		b, ok := h.Blob(l.BlobName)
		require.True(t, ok)
		require.Equal(t, int64(7), b.Size)
		require.Equal(t, "text/plain", b.ContentType)
		require.Equal(t, 1, b.Version)
		content, err := b.Bytes()
		require.NoError(t, err)
		require.Equal(t, "content", string(content))

		got := p.Do(http.MethodGet, l.URI(""), "", "Host", l.HostName)
		require.Equal(t, 200, got.StatusCode)
		require.Equal(t, "content", got.Text)
		require.Equal(t, "text/plain", got.Header.Get("Content-Type"))
		got = p.Do(http.MethodHead, l.URI(""), "", "Host", l.HostName)
		require.Equal(t, 200, got.StatusCode)
		require.Empty(t, got.Text)
		_, ok = h.Blob("dev-1/other")
		require.False(t, ok)
	})
}

func TestTheEndOfAnUploadIsReportedInThreeForms(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.OverHTTP(t, h, d)
		for i, form := range []func(id string) hubtest.Reply{
			func(id string) hubtest.Reply { return hubtest.EndUpload(p, hubtest.Ended(id)) },
			func(id string) hubtest.Reply {
				return p.Post("/devices/dev-1/files/notifications/"+hubtest.Version, hubtest.Ended(id)) // like the C SDK
			},
			func(id string) hubtest.Reply { // like the Node SDK
				return p.Post("/devices/dev-1/files/notifications/"+url.PathEscape(id)+hubtest.Version,
					`{"isSuccess":true,"statusCode":201,"statusDescription":""}`)
			},
		} {
			l := hubtest.BeginUpload(p, "a")
			hubtest.PutBlob(p, l, "a")
			require.Equal(t, 204, form(l.CorrelationID).StatusCode)
			require.Equal(t, hubdata.UploadSucceeded, h.Uploads()[i].State)
		}
		l := hubtest.BeginUpload(p, "b")
		require.Equal(t, 204, hubtest.EndUpload(p, `{"correlationId":"`+l.CorrelationID+
			`","isSuccess":false,"statusCode":500,"statusDescription":"why"}`).StatusCode)
		up := h.Uploads()[3]
		require.Equal(t, hubdata.UploadFailed, up.State)
		require.Equal(t, "why", up.StatusDescription)
	})
}

func TestWhatAHubRefusesOfUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{Uploads: testbroker.UploadOptions{Life: time.Minute}})
		p := hubtest.OverHTTP(t, h, d)
		begin := func(body string) hubtest.Reply { return p.Post("/devices/dev-1/files"+hubtest.Version, body) }
		begin(`{`).Refused(t, 400004)
		begin(`{}`).Refused(t, 400005)
		begin(`{"blobName":""}`).Refused(t, 400005)
		for _, name := range []string{"/a", "a//b", "../a", "a.", strings.Repeat("a", 1024), "a/" + strings.Repeat("/a",
			254)} {
			begin(`{"blobName":"`+name+`"}`).Refused(t, 400004)
		}
		for _, name := range []string{`a\nb`, `a\rb`, `a\u0000`, `a\u007f`, `a\u0085`} {
			r := begin(`{"blobName":"` + name + `"}`)
			r.Refused(t, 400004)
			require.Contains(t, r.Text, "control character")
		}
		hubtest.EndUpload(p, `{"isSuccess":true}`).Refused(t, 400005)
		hubtest.EndUpload(p, `{"correlationId":"nobody's","isSuccess":true}`).Refused(t, 400015)

		l := hubtest.BeginUpload(p, "a")
		hubtest.EndUpload(p, `{"correlationId":"`+l.CorrelationID+`"}`).Refused(t, 400019)
		hubtest.EndUpload(p, hubtest.Ended(l.CorrelationID)).Refused(t, 400020) // there is no file
		hubtest.PutBlob(p, l, "a")
		require.Equal(t, 204, hubtest.EndUpload(p, hubtest.Ended(l.CorrelationID)).StatusCode)
		hubtest.EndUpload(p, hubtest.Ended(l.CorrelationID)).Refused(t, 400015) // a repeated report

		other := hubtest.AddDevice(t, h, "dev-2")
		mine := hubtest.BeginUpload(p, "b")
		q := hubtest.OverHTTP(t, h, other)
		q.Post("/devices/dev-2/files/notifications"+hubtest.Version, hubtest.Ended(mine.CorrelationID)).Refused(t, 400015)
		q.Post("/devices/dev-1/files"+hubtest.Version, `{"blobName":"a"}`).Refused(t, 401002)

		for range hubdata.MaxUploads - 1 {
			hubtest.BeginUpload(p, "b")
		}
		begin(`{"blobName":"b"}`).Refused(t, 403006)
		q.Post("/devices/dev-2/files"+hubtest.Version, `{"blobName":"b"}`)
		require.Equal(t, 204, hubtest.EndUpload(p, `{"correlationId":"`+mine.CorrelationID+`","isSuccess":false}`).StatusCode)
		late := hubtest.BeginUpload(p, "b")
		begin(`{"blobName":"b"}`).Refused(t, 403006)
		time.Sleep(time.Minute)
		hubtest.EndUpload(p, hubtest.Ended(late.CorrelationID)).Refused(t, 400016)
		hubtest.PutUpload(p, late, "", "b", "x-ms-blob-type", "BlockBlob").StoreRefused(t, 403, "AuthenticationFailed")
		require.Equal(t, hubdata.UploadExpired, h.Uploads()[len(h.Uploads())-1].State)
		hubtest.BeginUpload(p, "b")

		none, nd := hubtest.NewHub(t, &testbroker.Options{Uploads: testbroker.UploadOptions{NoStore: true}})
		hubtest.OverHTTP(t, none, nd).Post("/devices/dev-1/files"+hubtest.Version, `{"blobName":"a"}`).Refused(t, 400014)
	})
}

func TestAnUploadCountsAsTwoMessages(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.OverHTTP(t, h, d)
		in := h.Inject(fault.Fault{Kind: fault.Quota, Limit: 4})
		hubtest.BeginUpload(p, "a")
		hubtest.BeginUpload(p, "a")
		p.Post("/devices/dev-1/files"+hubtest.Version, `{"blobName":"a"}`).Refused(t, 403002)
		require.Equal(t, 1, in.Fired())
		time.Sleep(24 * time.Hour)
		p.Token = hubtest.Token(d)
		hubtest.BeginUpload(p, "a")
	})
}

func TestFilesOfBlocks(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.OverHTTP(t, h, d)
		l := hubtest.BeginUpload(p, "a")
		stage := func(id, body string) {
			t.Helper()
			r := hubtest.PutUpload(p, l, blockOf(id), body, "Content-MD5", hubtest.MD5(body))
			require.Equal(t, 201, r.StatusCode, r.Text)
		}
		commit := func(entries ...string) hubtest.Reply {
			return hubtest.PutUpload(p, l, "&comp=blocklist", hubtest.BlockList(entries...))
		}
		content := func() string {
			b, _ := h.Blob(l.BlobName)
			text, err := b.Bytes()
			require.NoError(t, err)
			return string(text)
		}
		stage("1", "one")
		stage("2", "two")
		stage("3", "three")
		stage("2", "TWO") // replaces the first
		require.Empty(t, h.Blobs(), "nothing is there before the commit")
		commit("L1", "L4").StoreRefused(t, 400, "InvalidBlockList")
		require.Equal(t, 201, commit("L1", "U2", "L1").StatusCode)
		require.Equal(t, "oneTWOone", content())
		commit("U2").StoreRefused(t, 400, "InvalidBlockList") // it is part of the file
		commit("L3").StoreRefused(t, 400, "InvalidBlockList") // it was left out, so it was dropped
		require.Equal(t, 201, commit("L2", "C1").StatusCode)  // the latest block is the file's
		require.Equal(t, 201, commit("L2", "L1").StatusCode)  // like a client that lost the answer
		require.Equal(t, "TWOone", content())
		stage("2", "2")
		require.Equal(t, 201, commit("C2", "L2", "U2").StatusCode)
		require.Equal(t, "TWO22", content())
		b, _ := h.Blob(l.BlobName)
		require.Equal(t, 4, b.Version)
		require.Len(t, b.Blocks, 3)
		require.Equal(t, 201, commit().StatusCode)
		require.Empty(t, content())
		stage("1", "x")
		hubtest.PutBlob(p, l, "whole") // drops the staged block
		commit("L1").StoreRefused(t, 400, "InvalidBlockList")
		require.Equal(t, "whole", content())
	})
}

func TestWhatTheStoreRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{Uploads: testbroker.UploadOptions{MaxBlocks: 3}})
		p := hubtest.OverHTTP(t, h, d)
		l := hubtest.BeginUpload(p, "a")
		blob := []string{"x-ms-blob-type", "BlockBlob"}
		put := func(more, body string, header ...string) hubtest.Reply {
			return hubtest.PutUpload(p, l, more, body, header...)
		}

		put("", "a").StoreRefused(t, 400, "MissingRequiredHeader")
		put("", "a", "x-ms-blob-type", "PageBlob").StoreRefused(t, 400, "UnsupportedHeader")
		put("", "a", "x-ms-blob-type", "Nonsense").StoreRefused(t, 400, "InvalidHeaderValue")
		put("", "a", append(blob, "Content-MD5", "nonsense")...).StoreRefused(t, 400, "InvalidMd5")
		put("", "a", append(blob, "Content-MD5", hubtest.MD5("b"))...).StoreRefused(t, 400, "Md5Mismatch")
		put("", "a", append(blob, "x-ms-blob-content-md5", "nonsense")...).StoreRefused(t, 400, "InvalidMd5")
		put("", "a", append(blob, "x-ms-content-crc64", "AAAAAAAAAAA=")...).StoreRefused(t, 400, "UnsupportedHeader")
		put("", "a", append(blob, "x-ms-version", "tomorrow")...).StoreRefused(t, 400, "InvalidHeaderValue")
		put("&comp=copy", "a", blob...).StoreRefused(t, 400, "InvalidQueryParameterValue")
		put("&comp=block", "a").StoreRefused(t, 400, "MissingRequiredQueryParameter")
		put("&comp=block&blockid=!", "a").StoreRefused(t, 400, "InvalidBlockId")
		put(blockOf(strings.Repeat("1", 65)), "a").StoreRefused(t, 400, "InvalidBlockId")
		put(blockOf("1"), "").StoreRefused(t, 400, "InvalidHeaderValue")
		require.Equal(t, 201, put(blockOf("1"), "a").StatusCode)
		put(blockOf("12345"), "a").StoreRefused(t, 400, "InvalidBlobOrBlock") // an id of another length
		put("&comp=blocklist", "<BlockList>").StoreRefused(t, 400, "InvalidXmlDocument")
		put("&comp=blocklist", "<BlockList><Other/></BlockList>").StoreRefused(t, 400, "InvalidXmlDocument")
		put("&comp=blocklist", hubtest.BlockList("L1", "L1", "L1", "L1")).StoreRefused(t, 400, "BlockListTooLong")
		put("&comp=blocklist", hubtest.BlockList("L1"), "Content-MD5", hubtest.MD5("")).StoreRefused(t, 400, "Md5Mismatch")
		// Limits depend on the API version.
		put(blockOf("1"), strings.Repeat("a", 4<<20+1), "x-ms-version", "2015-02-21").StoreRefused(t, 413,
			"RequestBodyTooLarge")
		require.Equal(t, 201, put(blockOf("1"), strings.Repeat("a", 4<<20+1)).StatusCode)

		p.Do(http.MethodGet, l.URI(""), "", "Host", l.HostName).StoreRefused(t, 404, "BlobNotFound")
		require.Equal(t, 404, p.Do(http.MethodHead, l.URI(""), "", "Host", l.HostName).StatusCode)
		p.Do(http.MethodDelete, l.URI(""), "", "Host", l.HostName).StoreRefused(t, 403, "AuthorizationPermissionMismatch")
		require.Empty(t, h.Blobs())
	})
}

func TestAnUploadURIIsForOneFileAndOneHour(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.OverHTTP(t, h, d)
		l := hubtest.BeginUpload(p, "a")
		try := func(change func(q url.Values, l *hubtest.Leave)) hubtest.Reply {
			own := l
			q, err := url.ParseQuery(strings.TrimPrefix(l.SASToken, "?"))
			require.NoError(t, err)
			change(q, &own)
			own.SASToken = "?" + q.Encode()
			return hubtest.PutUpload(p, own, "", "a", "x-ms-blob-type", "BlockBlob")
		}
		require.Equal(t, 201, try(func(url.Values, *hubtest.Leave) {}).StatusCode)
		try(func(q url.Values, _ *hubtest.Leave) { q.Del("sig") }).StoreRefused(t, 401, "NoAuthenticationInformation")
		for name, value := range map[string]string{"sig": "AAAA", "se": "2099-01-01T00:00:00Z", "sp": "rwd",
			"sv": "2015-04-05",
			"sr": "c", "si": "other", "st": "2001-01-01"} {
			try(func(q url.Values, _ *hubtest.Leave) { q.Set(name, value) }).StoreRefused(t, 403, "AuthenticationFailed")
		}
		try(func(_ url.Values, l *hubtest.Leave) { l.BlobName = "dev-1/b" }).StoreRefused(t, 403, "AuthenticationFailed")
		try(func(_ url.Values, l *hubtest.Leave) { l.BlobName = "dev-2/a" }).StoreRefused(t, 403, "AuthenticationFailed")
		time.Sleep(time.Hour - time.Second)
		require.Equal(t, 201, try(func(url.Values, *hubtest.Leave) {}).StatusCode)
		time.Sleep(time.Second)
		try(func(url.Values, *hubtest.Leave) {}).StoreRefused(t, 403, "AuthenticationFailed")

		again := hubtest.BeginUpload(p, "a")
		hubtest.PutBlob(p, again, "a")
		require.Equal(t, 1, h.ExpireUploads("dev-1"))
		require.Zero(t, h.ExpireUploads(""))
		hubtest.PutUpload(p, again, "", "a", "x-ms-blob-type", "BlockBlob").StoreRefused(t, 403, "AuthenticationFailed")
		hubtest.EndUpload(p, hubtest.Ended(again.CorrelationID)).Refused(t, 400016)
	})
}

// A signature for an upload is none for a container, whatever the name of the upload is.
func TestAnUploadURIIsForNoContainer(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		s := hubtest.NewStorage(t, h)
		require.Equal(t, 201, s.Request("PUT", "/store/c-1?restype=container", "").StatusCode)
		s.Put("devices.txt", "all the keys")
		device := hubtest.OverHTTP(t, h, d)
		body, err := json.Marshal(map[string]string{"blobName": "A\n\n2099-01-01\n/blob/store/c-1\n\n\n\n2018-03-28\nX"})
		require.NoError(t, err)
		device.Post("/devices/dev-1/files"+hubtest.Version, string(body)).Refused(t, 400004)

		// The text of this SAS of the container is also that of an upload with the name above.
		expires := time.Now().UTC().Add(time.Hour).Format("2006-01-02T15:04:05Z")
		text := "rw\n\n" + expires + "\n/blob/store/uploads/dev-1/A\n\n2099-01-01\n/blob/store/c-1\n\n\n\n2018-03-28\nX\n" +
			"id\n\n\n2018-03-28\n\n\n\n\n"
		mac := hmac.New(sha256.New, s.Key)
		mac.Write([]byte(text))
		forged := url.Values{"sr": {"c"}, "sv": {"2018-03-28"}, "se": {"2099-01-01"},
			"sp":   {"rw\n\n" + expires + "\n/blob/store/uploads/dev-1/A"},
			"rscc": {"X\nid\n\n\n2018-03-28\n"}, "sig": {base64.StdEncoding.EncodeToString(mac.Sum(nil))}}
		device.Do("GET", "/store/c-1/devices.txt?"+forged.Encode(), "").StoreRefused(t, 400,
			"InvalidQueryParameterValue")
	})
}

func TestAStoreOfHashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{Uploads: testbroker.UploadOptions{Digest: true,
			Host: "elsewhere.example.test"}})
		p := hubtest.OverHTTP(t, h, d)
		l := hubtest.BeginUpload(p, "a")
		require.Equal(t, "elsewhere.example.test", l.HostName)
		require.Equal(t, 201, hubtest.PutUpload(p, l, blockOf("1"), "one").StatusCode)
		require.Equal(t, 201, hubtest.PutUpload(p, l, blockOf("2"), "two").StatusCode)
		require.Equal(t, 201, hubtest.PutUpload(p, l, "&comp=blocklist", hubtest.BlockList("L1", "L2")).StatusCode)
		b, ok := h.Blob(l.BlobName)
		require.True(t, ok)
		require.NoError(t, b.Matches(strings.NewReader("onetwo")))
		require.ErrorContains(t, b.Matches(strings.NewReader("onetWo")), "bytes 3 to 6: other content")
		require.ErrorContains(t, b.Matches(strings.NewReader("onetw")), "EOF")
		require.ErrorContains(t, b.Matches(strings.NewReader("onetwo3")), "1 too few")
		_, err := b.Bytes()
		require.Error(t, err)
		p.Do(http.MethodGet, l.URI(""), "", "Host", l.HostName).StoreRefused(t, 409, "BlobOperationNotSupported")
	})
}

func TestFaultsOfTheStore(t *testing.T) {
	for name, c := range map[string]struct {
		fault  fault.Fault
		status int // of the first request; zero = no answer
		code   string
		stored bool
		took   time.Duration
	}{
		"CutBlobBody": {fault: fault.Fault{Kind: fault.CutBlobBody}},
		"CutBlobBody of one": {fault: fault.Fault{Kind: fault.CutBlobBody, Device: "dev-1",
			Blob: fault.PutBlob}},
		"not its operation": {fault: fault.Fault{Kind: fault.CutBlobBody, Blob: fault.PutBlock}, status: 201,
			stored: true},
		"not its device": {fault: fault.Fault{Kind: fault.CutBlobBody, Device: "dev-2"}, status: 201,
			stored: true},
		"SlowBlob": {fault: fault.Fault{Kind: fault.SlowBlob, Delay: 5 * time.Second}, status: 201,
			stored: true, took: 5 * time.Second},
		"DamageBlob": {fault: fault.Fault{Kind: fault.DamageBlob}, status: 400, code: "Md5Mismatch"},
		"ExpireUpload": {fault: fault.Fault{Kind: fault.ExpireUpload}, status: 403,
			code: "AuthenticationFailed"},
		"ResetBeforeRequest": {fault: fault.Fault{Kind: fault.ResetBeforeRequest, Route: fault.RouteBlob}},
		"ResetAfterRequest": {fault: fault.Fault{Kind: fault.ResetAfterRequest, Route: fault.RouteBlob},
			stored: true},
		"AnswerStatus": {fault: fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteBlob},
			status: 503, code: "ServerBusy"},
		"AnswerStatus 500": {fault: fault.Fault{Kind: fault.AnswerStatus, Blob: fault.PutBlob,
			Statuses: []int{500}}, status: 500, code: "InternalError"},
		"AnswerStatus 409": {fault: fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteBlob,
			Statuses: []int{409}}, status: 409, code: "Conflict"},
		"AnswerStatusAfter": {fault: fault.Fault{Kind: fault.AnswerStatusAfter, Route: fault.RouteBlob,
			RetryAfter: time.Second}, status: 503, code: "ServerBusy", stored: true},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			p := hubtest.OverHTTP(t, h, d)
			in := h.Inject(c.fault)
			l := hubtest.BeginUpload(p, "a")
			began := time.Now()
			header := []string{"Host", l.HostName, "x-ms-blob-type", "BlockBlob", "Content-MD5", hubtest.MD5("content")}
			r, err := p.Try(http.MethodPut, l.URI(""), "content", header...)
			require.Equal(t, c.took, time.Since(began))
			_, stored := h.Blob(l.BlobName)
			require.Equal(t, c.stored, stored)
			require.Equal(t, !strings.HasPrefix(name, "not"), in.Fired() == 1)
			switch {
			case c.status == 0:
				require.Error(t, err)
			case c.code != "":
				require.NoError(t, err)
				r.StoreRefused(t, c.status, c.code)
			default:
				require.NoError(t, err)
				require.Equal(t, c.status, r.StatusCode, r.Text)
			}
			if name != "ExpireUpload" {
				hubtest.PutBlob(p, l, "content")
			}
		})
	}
}

func TestUploadsOnRealPorts(t *testing.T) {
	h, d := hubtest.NewHub(t, nil)
	addr := hubtest.Listen(t, h, testbroker.PortHTTPS)
	p := hubtest.NewPoster(t, nil, h.ClientTLS(), hubtest.Token(d))
	p.Base = "https://" + addr.String()
	l := hubtest.BeginUpload(p, "a")
	require.Equal(t, addr.String(), l.HostName, "the device finds the store where it found the hub")
	hubtest.PutBlob(p, l, "content")
	require.Equal(t, 204, hubtest.EndUpload(p, hubtest.Ended(l.CorrelationID)).StatusCode)
	require.NoError(t, h.WaitUploads(t.Context(), 1))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.Error(t, h.WaitUploads(ctx, 2))
}

func TestNamesOfUploads(t *testing.T) {
	require.Equal(t, "expired", hubdata.UploadExpired.String())
	require.Equal(t, "UploadState(9)", hubdata.UploadState(9).String())
	require.Equal(t, "Put Block List", fault.PutBlockList.String())
	require.Equal(t, "BlobOperation(9)", fault.BlobOperation(9).String())
}
