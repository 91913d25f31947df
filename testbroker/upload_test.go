package testbroker_test

import (
	"context"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
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
)

// A leave is the hub's answer to an upload request.
type leave struct {
	CorrelationID, HostName, ContainerName, BlobName, SASToken string
}

func (p *poster) beginUpload(name string) leave {
	p.t.Helper()
	body, err := json.Marshal(map[string]string{"blobName": name})
	require.NoError(p.t, err)
	r := p.post("/devices/dev-1/files"+version, string(body))
	require.Equal(p.t, 200, r.StatusCode, r.body)
	var l leave
	require.NoError(p.t, json.Unmarshal([]byte(r.body), &l))
	return l
}

// uri returns the upload URI without the host, with more appended to its query.
func (l leave) uri(more string) string {
	return (&url.URL{Path: "/" + l.ContainerName + "/" + l.BlobName}).EscapedPath() + l.SASToken + more
}

func (p *poster) put(l leave, more, body string, header ...string) reply {
	p.t.Helper()
	return p.do(http.MethodPut, l.uri(more), body, append([]string{"Host", l.HostName, "x-ms-version", "2019-12-12"},
		header...)...)
}

func (p *poster) putBlob(l leave, body string) {
	p.t.Helper()
	r := p.put(l, "", body, "x-ms-blob-type", "BlockBlob")
	require.Equal(p.t, 201, r.StatusCode, r.body)
}

func (p *poster) endUpload(body string) reply {
	p.t.Helper()
	return p.post("/devices/dev-1/files/notifications"+version, body)
}

func ended(id string) string {
	return fmt.Sprintf(`{"correlationId":%q,"isSuccess":true,"statusCode":201,"statusDescription":"Created"}`, id)
}

// storeRefused checks that a reply is a refusal of the store, in the body and in the header.
func (r reply) storeRefused(t testing.TB, status int, code string) {
	t.Helper()
	require.Equal(t, status, r.StatusCode, r.body)
	require.Equal(t, code, r.Header.Get("x-ms-error-code"))
	require.Equal(t, "application/xml", r.Header.Get("Content-Type"))
	require.NotEmpty(t, r.Header.Get("x-ms-request-id"))
	var body struct {
		XMLName       xml.Name `xml:"Error"`
		Code, Message string
	}
	require.NoError(t, xml.Unmarshal([]byte(r.body), &body), r.body)
	require.Equal(t, code, body.Code)
	require.Contains(t, body.Message, "RequestId:"+r.Header.Get("x-ms-request-id"))
}

func md5Of(body string) string {
	sum := md5.Sum([]byte(body))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func blockOf(name string) string {
	return "&comp=block&blockid=" + url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(name)))
}

// list returns the body of Put Block List: "L1" is the latest block "1".
func list(entries ...string) string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="utf-8"?><BlockList>`)
	for _, e := range entries {
		tag := map[byte]string{'L': "Latest", 'C': "Committed", 'U': "Uncommitted"}[e[0]]
		fmt.Fprintf(&b, "<%s>%s</%s>", tag, base64.StdEncoding.EncodeToString([]byte(e[1:])), tag)
	}
	b.WriteString("</BlockList>")
	return b.String()
}

func TestUploadOfAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		p := overHTTP(t, h, d)
		began := time.Now()
		l := p.beginUpload("logs/a b.txt")
		require.Equal(t, "store.hub.example.test", l.HostName)
		require.Equal(t, "uploads", l.ContainerName)
		require.Equal(t, "dev-1/logs/a b.txt", l.BlobName)
		require.True(t, strings.HasPrefix(l.SASToken, "?"), "as the service does")
		require.Equal(t, hubdata.UploadRunning, h.Uploads()[0].State)
		require.Equal(t, began.Add(time.Hour), h.Uploads()[0].Expires)

		r := p.put(l, "", "content", "x-ms-blob-type", "BlockBlob", "Content-MD5", md5Of("content"), "x-ms-blob-content-type",
			"text/plain")
		require.Equal(t, 201, r.StatusCode, r.body)
		require.Equal(t, md5Of("content"), r.Header.Get("Content-MD5"))
		require.NotEmpty(t, r.Header.Get("ETag"))
		require.Equal(t, "2019-12-12", r.Header.Get("x-ms-version"))
		time.Sleep(time.Minute)
		require.Equal(t, 204, p.endUpload(ended(l.CorrelationID)).StatusCode)

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

		got := p.do(http.MethodGet, l.uri(""), "", "Host", l.HostName)
		require.Equal(t, 200, got.StatusCode)
		require.Equal(t, "content", got.body)
		require.Equal(t, "text/plain", got.Header.Get("Content-Type"))
		got = p.do(http.MethodHead, l.uri(""), "", "Host", l.HostName)
		require.Equal(t, 200, got.StatusCode)
		require.Empty(t, got.body)
		_, ok = h.Blob("dev-1/other")
		require.False(t, ok)
	})
}

func TestTheEndOfAnUploadIsReportedInThreeForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		p := overHTTP(t, h, d)
		for i, form := range []func(id string) reply{
			func(id string) reply { return p.endUpload(ended(id)) },
			func(id string) reply {
				return p.post("/devices/dev-1/files/notifications/"+version, ended(id)) // like the C SDK
			},
			func(id string) reply { // like the Node SDK
				return p.post("/devices/dev-1/files/notifications/"+url.PathEscape(id)+version,
					`{"isSuccess":true,"statusCode":201,"statusDescription":""}`)
			},
		} {
			l := p.beginUpload("a")
			p.putBlob(l, "a")
			require.Equal(t, 204, form(l.CorrelationID).StatusCode)
			require.Equal(t, hubdata.UploadSucceeded, h.Uploads()[i].State)
		}
		l := p.beginUpload("b")
		require.Equal(t, 204, p.endUpload(`{"correlationId":"`+l.CorrelationID+
			`","isSuccess":false,"statusCode":500,"statusDescription":"why"}`).StatusCode)
		up := h.Uploads()[3]
		require.Equal(t, hubdata.UploadFailed, up.State)
		require.Equal(t, "why", up.StatusDescription)
	})
}

func TestWhatAHubRefusesOfUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, &testbroker.Options{Uploads: testbroker.UploadOptions{Life: time.Minute}})
		p := overHTTP(t, h, d)
		begin := func(body string) reply { return p.post("/devices/dev-1/files"+version, body) }
		begin(`{`).refused(t, 400004)
		begin(`{}`).refused(t, 400005)
		begin(`{"blobName":""}`).refused(t, 400005)
		for _, name := range []string{"/a", "a//b", "../a", "a.", strings.Repeat("a", 1024), "a/" + strings.Repeat("/a",
			254)} {
			begin(`{"blobName":"`+name+`"}`).refused(t, 400004)
		}
		for _, name := range []string{`a\nb`, `a\rb`, `a\u0000`, `a\u007f`, `a\u0085`} {
			r := begin(`{"blobName":"` + name + `"}`)
			r.refused(t, 400004)
			require.Contains(t, r.body, "control character")
		}
		p.endUpload(`{"isSuccess":true}`).refused(t, 400005)
		p.endUpload(`{"correlationId":"nobody's","isSuccess":true}`).refused(t, 400015)

		l := p.beginUpload("a")
		p.endUpload(`{"correlationId":"`+l.CorrelationID+`"}`).refused(t, 400019)
		p.endUpload(ended(l.CorrelationID)).refused(t, 400020) // there is no file
		p.putBlob(l, "a")
		require.Equal(t, 204, p.endUpload(ended(l.CorrelationID)).StatusCode)
		p.endUpload(ended(l.CorrelationID)).refused(t, 400015) // a repeated report

		other, err := h.AddDevice("dev-2")
		require.NoError(t, err)
		mine := p.beginUpload("b")
		q := overHTTP(t, h, other)
		q.post("/devices/dev-2/files/notifications"+version, ended(mine.CorrelationID)).refused(t, 400015)
		q.post("/devices/dev-1/files"+version, `{"blobName":"a"}`).refused(t, 401002)

		for range hubdata.MaxUploads - 1 {
			p.beginUpload("b")
		}
		begin(`{"blobName":"b"}`).refused(t, 403006)
		q.post("/devices/dev-2/files"+version, `{"blobName":"b"}`)
		require.Equal(t, 204, p.endUpload(`{"correlationId":"`+mine.CorrelationID+`","isSuccess":false}`).StatusCode)
		late := p.beginUpload("b")
		begin(`{"blobName":"b"}`).refused(t, 403006)
		time.Sleep(time.Minute)
		p.endUpload(ended(late.CorrelationID)).refused(t, 400016)
		p.put(late, "", "b", "x-ms-blob-type", "BlockBlob").storeRefused(t, 403, "AuthenticationFailed")
		require.Equal(t, hubdata.UploadExpired, h.Uploads()[len(h.Uploads())-1].State)
		p.beginUpload("b")

		none, nd := newHub(t, &testbroker.Options{Uploads: testbroker.UploadOptions{NoStore: true}})
		overHTTP(t, none, nd).post("/devices/dev-1/files"+version, `{"blobName":"a"}`).refused(t, 400014)
	})
}

func TestAnUploadCountsAsTwoMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		p := overHTTP(t, h, d)
		in := h.Inject(fault.Fault{Kind: fault.Quota, Limit: 4})
		p.beginUpload("a")
		p.beginUpload("a")
		p.post("/devices/dev-1/files"+version, `{"blobName":"a"}`).refused(t, 403002)
		require.Equal(t, 1, in.Fired())
		time.Sleep(24 * time.Hour)
		p.token = token(d)
		p.beginUpload("a")
	})
}

func TestFilesOfBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		p := overHTTP(t, h, d)
		l := p.beginUpload("a")
		stage := func(id, body string) {
			t.Helper()
			r := p.put(l, blockOf(id), body, "Content-MD5", md5Of(body))
			require.Equal(t, 201, r.StatusCode, r.body)
		}
		commit := func(entries ...string) reply { return p.put(l, "&comp=blocklist", list(entries...)) }
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
		commit("L1", "L4").storeRefused(t, 400, "InvalidBlockList")
		require.Equal(t, 201, commit("L1", "U2", "L1").StatusCode)
		require.Equal(t, "oneTWOone", content())
		commit("U2").storeRefused(t, 400, "InvalidBlockList") // it is part of the file
		commit("L3").storeRefused(t, 400, "InvalidBlockList") // it was left out, so it was dropped
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
		p.putBlob(l, "whole") // drops the staged block
		commit("L1").storeRefused(t, 400, "InvalidBlockList")
		require.Equal(t, "whole", content())
	})
}

func TestWhatTheStoreRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, &testbroker.Options{Uploads: testbroker.UploadOptions{MaxBlocks: 3}})
		p := overHTTP(t, h, d)
		l := p.beginUpload("a")
		blob := []string{"x-ms-blob-type", "BlockBlob"}
		put := func(more, body string, header ...string) reply { return p.put(l, more, body, header...) }

		put("", "a").storeRefused(t, 400, "MissingRequiredHeader")
		put("", "a", "x-ms-blob-type", "PageBlob").storeRefused(t, 400, "UnsupportedHeader")
		put("", "a", "x-ms-blob-type", "Nonsense").storeRefused(t, 400, "InvalidHeaderValue")
		put("", "a", append(blob, "Content-MD5", "nonsense")...).storeRefused(t, 400, "InvalidMd5")
		put("", "a", append(blob, "Content-MD5", md5Of("b"))...).storeRefused(t, 400, "Md5Mismatch")
		put("", "a", append(blob, "x-ms-blob-content-md5", "nonsense")...).storeRefused(t, 400, "InvalidMd5")
		put("", "a", append(blob, "x-ms-content-crc64", "AAAAAAAAAAA=")...).storeRefused(t, 400, "UnsupportedHeader")
		put("", "a", append(blob, "x-ms-version", "tomorrow")...).storeRefused(t, 400, "InvalidHeaderValue")
		put("&comp=copy", "a", blob...).storeRefused(t, 400, "InvalidQueryParameterValue")
		put("&comp=block", "a").storeRefused(t, 400, "MissingRequiredQueryParameter")
		put("&comp=block&blockid=!", "a").storeRefused(t, 400, "InvalidBlockId")
		put(blockOf(strings.Repeat("1", 65)), "a").storeRefused(t, 400, "InvalidBlockId")
		put(blockOf("1"), "").storeRefused(t, 400, "InvalidHeaderValue")
		require.Equal(t, 201, put(blockOf("1"), "a").StatusCode)
		put(blockOf("12345"), "a").storeRefused(t, 400, "InvalidBlobOrBlock") // an id of another length
		put("&comp=blocklist", "<BlockList>").storeRefused(t, 400, "InvalidXmlDocument")
		put("&comp=blocklist", "<BlockList><Other/></BlockList>").storeRefused(t, 400, "InvalidXmlDocument")
		put("&comp=blocklist", list("L1", "L1", "L1", "L1")).storeRefused(t, 400, "BlockListTooLong")
		put("&comp=blocklist", list("L1"), "Content-MD5", md5Of("")).storeRefused(t, 400, "Md5Mismatch")
		// Limits depend on the API version.
		put(blockOf("1"), strings.Repeat("a", 4<<20+1), "x-ms-version", "2015-02-21").storeRefused(t, 413,
			"RequestBodyTooLarge")
		require.Equal(t, 201, put(blockOf("1"), strings.Repeat("a", 4<<20+1)).StatusCode)

		p.do(http.MethodGet, l.uri(""), "", "Host", l.HostName).storeRefused(t, 404, "BlobNotFound")
		require.Equal(t, 404, p.do(http.MethodHead, l.uri(""), "", "Host", l.HostName).StatusCode)
		p.do(http.MethodDelete, l.uri(""), "", "Host", l.HostName).storeRefused(t, 403, "AuthorizationPermissionMismatch")
		require.Empty(t, h.Blobs())
	})
}

func TestAnUploadURIIsForOneFileAndOneHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		p := overHTTP(t, h, d)
		l := p.beginUpload("a")
		try := func(change func(q url.Values, l *leave)) reply {
			own := l
			q, err := url.ParseQuery(strings.TrimPrefix(l.SASToken, "?"))
			require.NoError(t, err)
			change(q, &own)
			own.SASToken = "?" + q.Encode()
			return p.put(own, "", "a", "x-ms-blob-type", "BlockBlob")
		}
		require.Equal(t, 201, try(func(url.Values, *leave) {}).StatusCode)
		try(func(q url.Values, _ *leave) { q.Del("sig") }).storeRefused(t, 401, "NoAuthenticationInformation")
		for name, value := range map[string]string{"sig": "AAAA", "se": "2099-01-01T00:00:00Z", "sp": "rwd",
			"sv": "2015-04-05",
			"sr": "c", "si": "other", "st": "2001-01-01"} {
			try(func(q url.Values, _ *leave) { q.Set(name, value) }).storeRefused(t, 403, "AuthenticationFailed")
		}
		try(func(_ url.Values, l *leave) { l.BlobName = "dev-1/b" }).storeRefused(t, 403, "AuthenticationFailed")
		try(func(_ url.Values, l *leave) { l.BlobName = "dev-2/a" }).storeRefused(t, 403, "AuthenticationFailed")
		time.Sleep(time.Hour - time.Second)
		require.Equal(t, 201, try(func(url.Values, *leave) {}).StatusCode)
		time.Sleep(time.Second)
		try(func(url.Values, *leave) {}).storeRefused(t, 403, "AuthenticationFailed")

		again := p.beginUpload("a")
		p.putBlob(again, "a")
		require.Equal(t, 1, h.ExpireUploads("dev-1"))
		require.Zero(t, h.ExpireUploads(""))
		p.put(again, "", "a", "x-ms-blob-type", "BlockBlob").storeRefused(t, 403, "AuthenticationFailed")
		p.endUpload(ended(again.CorrelationID)).refused(t, 400016)
	})
}

// A signature for an upload is none for a container, whatever the name of the upload is.
func TestAnUploadURIIsForNoContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, nil)
		s := newStorage(t, h)
		require.Equal(t, 201, s.request("PUT", "/store/c-1?restype=container", "").StatusCode)
		s.put("devices.txt", "all the keys")
		device := overHTTP(t, h, d)
		body, err := json.Marshal(map[string]string{"blobName": "A\n\n2099-01-01\n/blob/store/c-1\n\n\n\n2018-03-28\nX"})
		require.NoError(t, err)
		device.post("/devices/dev-1/files"+version, string(body)).refused(t, 400004)

		// The text of this SAS of the container is also that of an upload with the name above.
		expires := time.Now().UTC().Add(time.Hour).Format("2006-01-02T15:04:05Z")
		text := "rw\n\n" + expires + "\n/blob/store/uploads/dev-1/A\n\n2099-01-01\n/blob/store/c-1\n\n\n\n2018-03-28\nX\n" +
			"id\n\n\n2018-03-28\n\n\n\n\n"
		mac := hmac.New(sha256.New, s.key)
		mac.Write([]byte(text))
		forged := url.Values{"sr": {"c"}, "sv": {"2018-03-28"}, "se": {"2099-01-01"},
			"sp":   {"rw\n\n" + expires + "\n/blob/store/uploads/dev-1/A"},
			"rscc": {"X\nid\n\n\n2018-03-28\n"}, "sig": {base64.StdEncoding.EncodeToString(mac.Sum(nil))}}
		device.do("GET", "/store/c-1/devices.txt?"+forged.Encode(), "").storeRefused(t, 400,
			"InvalidQueryParameterValue")
	})
}

func TestAStoreOfHashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHub(t, &testbroker.Options{Uploads: testbroker.UploadOptions{Digest: true,
			Host: "elsewhere.example.test"}})
		p := overHTTP(t, h, d)
		l := p.beginUpload("a")
		require.Equal(t, "elsewhere.example.test", l.HostName)
		require.Equal(t, 201, p.put(l, blockOf("1"), "one").StatusCode)
		require.Equal(t, 201, p.put(l, blockOf("2"), "two").StatusCode)
		require.Equal(t, 201, p.put(l, "&comp=blocklist", list("L1", "L2")).StatusCode)
		b, ok := h.Blob(l.BlobName)
		require.True(t, ok)
		require.NoError(t, b.Matches(strings.NewReader("onetwo")))
		require.ErrorContains(t, b.Matches(strings.NewReader("onetWo")), "bytes 3 to 6: other content")
		require.ErrorContains(t, b.Matches(strings.NewReader("onetw")), "EOF")
		require.ErrorContains(t, b.Matches(strings.NewReader("onetwo3")), "1 too few")
		_, err := b.Bytes()
		require.Error(t, err)
		p.do(http.MethodGet, l.uri(""), "", "Host", l.HostName).storeRefused(t, 409, "BlobOperationNotSupported")
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newHub(t, nil)
				p := overHTTP(t, h, d)
				in := h.Inject(c.fault)
				l := p.beginUpload("a")
				began := time.Now()
				header := []string{"Host", l.HostName, "x-ms-blob-type", "BlockBlob", "Content-MD5", md5Of("content")}
				r, err := p.try(http.MethodPut, l.uri(""), "content", header...)
				require.Equal(t, c.took, time.Since(began))
				_, stored := h.Blob(l.BlobName)
				require.Equal(t, c.stored, stored)
				require.Equal(t, !strings.HasPrefix(name, "not"), in.Fired() == 1)
				switch {
				case c.status == 0:
					require.Error(t, err)
				case c.code != "":
					require.NoError(t, err)
					r.storeRefused(t, c.status, c.code)
				default:
					require.NoError(t, err)
					require.Equal(t, c.status, r.StatusCode, r.body)
				}
				if name != "ExpireUpload" {
					p.putBlob(l, "content")
				}
			})
		})
	}
}

func TestUploadsOnRealPorts(t *testing.T) {
	h, d := newHub(t, nil)
	addr, err := h.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	require.NoError(t, err)
	p := newPoster(t, nil, h.ClientTLS(), token(d))
	p.base = "https://" + addr.String()
	l := p.beginUpload("a")
	require.Equal(t, addr.String(), l.HostName, "the device finds the store where it found the hub")
	p.putBlob(l, "content")
	require.Equal(t, 204, p.endUpload(ended(l.CorrelationID)).StatusCode)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.NoError(t, h.WaitUploads(ctx, 1))
	require.Error(t, h.WaitUploads(ctx, 2))
}

func TestNamesOfUploads(t *testing.T) {
	require.Equal(t, "expired", hubdata.UploadExpired.String())
	require.Equal(t, "UploadState(9)", hubdata.UploadState(9).String())
	require.Equal(t, "Put Block List", fault.PutBlockList.String())
	require.Equal(t, "BlobOperation(9)", fault.BlobOperation(9).String())
}
