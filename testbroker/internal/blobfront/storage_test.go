package blobfront_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestAContainerKeepsBlobsWithMetadata(t *testing.T) {
	hubtest.InStorage(t, func(t *testing.T, h *testbroker.Hub, s *hubtest.Storage) {
		r := s.Put("a/b.txt", "0123456789", "x-ms-meta-Owner", "me", "x-ms-blob-content-type", "text/plain")
		first := r.Header.Get("ETag")
		time.Sleep(time.Hour)
		r = s.Request("PUT", "/store/c-1/a/b.txt?comp=metadata", "", "x-ms-meta-other", "1")
		require.Equal(t, 200, r.StatusCode, r.Text)
		second := r.Header.Get("ETag")
		require.NotEqual(t, first, second)
		require.Equal(t, time.Now().UTC().Format(http.TimeFormat), r.Header.Get("Last-Modified"))
		r = s.Request("GET", "/store/c-1/a/b.txt", "")
		require.Equal(t, []string{"0123456789", second, "text/plain", "1", ""}, []string{r.Text, r.Header.Get("ETag"),
			r.Header.Get("Content-Type"), r.Header.Get("x-ms-meta-other"), r.Header.Get("x-ms-meta-owner")})
		r = s.Request("HEAD", "/store/c-1/a/b.txt", "")
		require.EqualValues(t, 10, r.ContentLength)
		r = s.Request("GET", "/store/c-1/a/b.txt?comp=metadata", "")
		require.Equal(t, "1", r.Header.Get("x-ms-meta-other"))
		for text, want := range map[string]string{"bytes=2-4": "234", "bytes=8-": "89", "bytes=0-99": "0123456789"} {
			r = s.Request("GET", "/store/c-1/a/b.txt", "", "x-ms-range", text)
			require.Equal(t, []any{206, want}, []any{r.StatusCode, r.Text})
		}
		r = s.Request("GET", "/store/c-1/a/b.txt", "", "Range", "bytes=2-4")
		require.Equal(t, "bytes 2-4/10", r.Header.Get("Content-Range"))
		s.Request("GET", "/store/c-1/a/b.txt", "", "x-ms-range", "bytes=10-11").StoreRefused(t, 416, "InvalidRange")
		s.Request("GET", "/store/c-1/a/b.txt", "", "x-ms-range", "bytes=4-2").StoreRefused(t, 400, "InvalidHeaderValue")
		require.Equal(t, 202, s.Request("DELETE", "/store/c-1/a/b.txt", "").StatusCode)
		s.Request("GET", "/store/c-1/a/b.txt", "").StoreRefused(t, 404, "BlobNotFound")
		s.Request("DELETE", "/store/c-1/a/b.txt", "").StoreRefused(t, 404, "BlobNotFound")
		h.Reset()
		s.Request("GET", "/store/c-1/a/b.txt", "").StoreRefused(t, 404, "ContainerNotFound")
	})
}

// A request about a snapshot or a version does not change the blob itself.
func TestTheStoreHasNoSnapshots(t *testing.T) {
	hubtest.InStorage(t, func(t *testing.T, _ *testbroker.Hub, s *hubtest.Storage) {
		s.Put("f", "x")
		const at = "2020-01-01T00:00:00.0000000Z"
		for _, method := range []string{"GET", "DELETE"} {
			for _, query := range []string{"?snapshot=" + at, "?versionid=" + at, "?deletetype=permanent"} {
				s.Request(method, "/store/c-1/f"+query, "").StoreRefused(t, 400, "UnsupportedQueryParameter")
			}
		}
		s.Request("DELETE", "/store/c-1/f", "", "x-ms-delete-snapshots", "only").StoreRefused(t, 400, "UnsupportedHeader")
		require.Equal(t, "x", s.Request("GET", "/store/c-1/f", "").Text)
		require.Equal(t, 202, s.Request("DELETE", "/store/c-1/f", "", "x-ms-delete-snapshots", "include").StatusCode)
	})
}

// The signature of a request is for that request, and for no other with the same text to sign.
func TestASignedRequestHasOneReading(t *testing.T) {
	hubtest.InStorage(t, func(t *testing.T, _ *testbroker.Hub, s *hubtest.Storage) {
		s.Put("f", "secret")
		signed := s.Request("GET", "/store/c-1/f?comp=metadata", "")
		require.Equal(t, 200, signed.StatusCode)
		var header []string
		for name, v := range signed.Request.Header {
			header = append(header, name, v[0])
		}
		for _, query := range []string{"?Comp=metadata", "?a=1%0Acomp:metadata", "?a%0Db=1"} {
			s.Do("GET", "/store/c-1/f"+query, "", header...).StoreRefused(t, 400, "InvalidQueryParameterValue")
		}
	})
}

// Faults of devices leave checkpoints, containers and the account alone, and faults of the storage
// leave uploads alone.
func TestFaultsOfUploadsAndOfStorage(t *testing.T) {
	for name, c := range map[string]struct {
		fault   fault.Fault
		method  string // of the back end's request that the fault is meant for; empty: none
		path    string
		uploads int // how often it happens to an upload of a file
	}{
		"any route":   {fault: fault.Fault{Kind: fault.AnswerStatus}, uploads: 1},
		"an upload":   {fault: fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteBlob}, uploads: 1},
		"a file":      {fault: fault.Fault{Kind: fault.AnswerStatus, Blob: fault.PutBlob}, uploads: 1},
		"slow":        {fault: fault.Fault{Kind: fault.SlowBlob, Delay: time.Second}, uploads: 1},
		"absent":      {fault: fault.Fault{Kind: fault.Absent, Device: "dev-1"}, uploads: 1},
		"expired":     {fault: fault.Fault{Kind: fault.ExpireUpload}, uploads: 1},
		"not expired": {fault: fault.Fault{Kind: fault.ExpireUpload, Route: fault.RouteStorage}},
		"a checkpoint": {fault: fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteStorage, Blob: fault.PutBlob},
			method: "PUT", path: "/store/c-1/f"},
		"damage": {fault: fault.Fault{Kind: fault.DamageBlob, Route: fault.RouteStorage}, method: "PUT",
			path: "/store/c-1/f"},
		"a reader": {fault: fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteStorage, Blob: fault.GetBlob},
			method: "GET", path: "/store/c-1/f"},
		"the account": {fault: fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteStorage}, method: "GET",
			path: "/store?comp=list"},
		"an upload's reader": {fault: fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteStorage, Device: "dev-1"},
			method: "GET", path: "/uploads/dev-1/a"},
	} {
		t.Run(name, func(t *testing.T) {
			hubtest.InStorage(t, func(t *testing.T, h *testbroker.Hub, s *hubtest.Storage) {
				d := hubtest.Registered(t, h, "dev-1")
				device := hubtest.NewPoster(t, h.Dial(testbroker.PortHTTP), nil, hubtest.Token(d))
				l := hubtest.BeginUpload(device, "a")
				in := h.Inject(c.fault)
				for _, path := range []string{"/store?comp=list", "/store/c-1?restype=container", "/store/c-1/f",
					"/uploads/dev-1/a"} {
					for _, method := range []string{"GET", "PUT"} {
						before := in.Fired()
						s.Request(method, path, "x", "x-ms-blob-type", "BlockBlob", "Content-MD5", hubtest.MD5("x"))
						require.Equal(t, method == c.method && path == c.path, in.Fired() > before, "%s %s", method, path)
					}
				}
				before := in.Fired()
				_, err := device.Try("PUT", l.URI(""), "x", "Host", l.HostName, "x-ms-blob-type", "BlockBlob")
				require.Equal(t, c.uploads, in.Fired()-before)
				require.True(t, err == nil || name == "absent", err)
			})
		})
	}
}

func TestConditionsDecideBetweenWriters(t *testing.T) {
	hubtest.InStorage(t, func(t *testing.T, _ *testbroker.Hub, s *hubtest.Storage) {
		const blob, kind = "/store/c-1/a", "x-ms-blob-type"
		s.Request("PUT", blob, "", kind, "BlockBlob", "If-Match", `"0x1"`).StoreRefused(t, 412, "ConditionNotMet")
		s.Request("PUT", blob+"?comp=metadata", "", "If-Match", `"0x1"`).StoreRefused(t, 404, "BlobNotFound")
		tag := s.Put("a", "1", "If-None-Match", "*").Header.Get("ETag")
		s.Request("PUT", blob, "2", kind, "BlockBlob", "If-None-Match", "*").StoreRefused(t, 409, "BlobAlreadyExists")
		s.Request("PUT", blob, "2", kind, "BlockBlob", "If-None-Match", tag).StoreRefused(t, 412, "ConditionNotMet")
		s.Request("GET", blob, "", "If-Match", `"0x1"`).StoreRefused(t, 412, "ConditionNotMet")
		require.Equal(t, 304, s.Request("GET", blob, "", "If-None-Match", tag).StatusCode)
		// A list has ETags without quotes.
		r := s.Request("PUT", blob+"?comp=metadata", "", "If-Match", strings.Trim(tag, `"`), "x-ms-meta-a", "1")
		require.Equal(t, 200, r.StatusCode, r.Text)
		s.Request("PUT", blob+"?comp=metadata", "", "If-Match", tag).StoreRefused(t, 412, "ConditionNotMet")
		s.Request("DELETE", blob, "", "If-Match", tag).StoreRefused(t, 412, "ConditionNotMet")
		now := time.Now().UTC()
		earlier, later := now.Add(-time.Minute).Format(http.TimeFormat), now.Add(time.Minute).Format(http.TimeFormat)
		s.Request("DELETE", blob, "", "If-Unmodified-Since", earlier).StoreRefused(t, 412, "ConditionNotMet")
		require.Equal(t, 304, s.Request("GET", blob, "", "If-Modified-Since", later).StatusCode)
		require.Equal(t, 200, s.Request("GET", blob, "", "If-Modified-Since", earlier).StatusCode)
		s.Request("GET", blob, "", "If-Modified-Since", "today").StoreRefused(t, 400, "InvalidHeaderValue")
		require.Equal(t, 202, s.Request("DELETE", blob, "", "If-Match", r.Header.Get("ETag")).StatusCode)
	})
}

// Readers get what the writer has stated about the content.
func TestPropertiesOfContent(t *testing.T) {
	headers := []string{"Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition", "Cache-Control",
		"Content-MD5"}
	all := []string{"text/csv", "br", "de", "inline", "no-store", hubtest.MD5("content")}
	stated := func(prefix string) (header []string) {
		for i, name := range headers {
			header = append(header, prefix+name, all[i])
		}
		return header
	}
	hubtest.InStorage(t, func(t *testing.T, _ *testbroker.Hub, s *hubtest.Storage) {
		read := func(path string) (found []string) {
			for _, method := range []string{"GET", "HEAD"} {
				r := s.Request(method, path, "")
				require.Equal(t, 200, r.StatusCode, r.Text)
				found = nil
				for _, name := range headers {
					found = append(found, r.Header.Get(name))
				}
			}
			return found
		}
		s.Put("f", "content", stated("x-ms-blob-")...)
		require.Equal(t, all, read("/store/c-1/f"))
		require.Equal(t, 206, s.Request("GET", "/store/c-1/f", "", "x-ms-range", "bytes=0-1").StatusCode)
		list := s.Request("GET", "/store/c-1?restype=container&comp=list", "").Text
		for i, name := range headers {
			require.Contains(t, list, "<"+name+">"+all[i]+"</"+name+">")
		}
		require.Equal(t, 200, s.Request("PUT", "/store/c-1/f?comp=metadata", "", "x-ms-meta-a", "1").StatusCode)
		require.Equal(t, all, read("/store/c-1/f"), "metadata changes nothing of it")

		// The headers of the body count if it is the file.
		s.Put("f", "content", stated("")...)
		require.Equal(t, []string{"text/csv", "br", "de", "", "no-store", hubtest.MD5("content")},
			read("/store/c-1/f"))
		s.Put("f", "content", "Content-Encoding", "br", "x-ms-blob-content-encoding", "zstd")
		require.Equal(t, []string{"application/octet-stream", "zstd", "", "", "", hubtest.MD5("content")},
			read("/store/c-1/f"))
		require.Equal(t, 201, s.Request("PUT", "/store/c-1/f?comp=block&blockid=AAAA", "content").StatusCode)
		const body = "<BlockList><Latest>AAAA</Latest></BlockList>"
		s.Request("PUT", "/store/c-1/f?comp=blocklist", body, "Content-Type", "text/xml", "Content-Encoding", "br")
		require.Equal(t, []string{"application/octet-stream", "", "", "", "", ""}, read("/store/c-1/f"))
		require.Equal(t, 201, s.Request("PUT", "/store/c-1/f?comp=block&blockid=AAAA", "content").StatusCode)
		s.Request("PUT", "/store/c-1/f?comp=blocklist", body, stated("x-ms-blob-")...)
		require.Equal(t, all, read("/store/c-1/f"))

		// A SAS may have other ones for its reader.
		sas := s.Sign("sr=c&sv=2020-12-06&sp=r&rsct=text/plain&rscd=attachment&se=" +
			time.Now().UTC().Add(time.Hour).Format(time.RFC3339))
		r := s.Do("GET", "/store/c-1/f"+sas, "")
		require.Equal(t, []string{"text/plain", "br", "attachment"}, []string{r.Header.Get("Content-Type"),
			r.Header.Get("Content-Encoding"), r.Header.Get("Content-Disposition")})
		r = s.Request("GET", "/store/c-1/f?rsct=text/plain", "")
		require.Equal(t, "text/csv", r.Header.Get("Content-Type"))
	})
}

// A device compresses what it uploads, and back ends learn that.
func TestAnUploadKeepsItsEncoding(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.OverHTTP(t, h, d)
		l := hubtest.BeginUpload(p, "a")
		r := hubtest.PutUpload(p, l, "", "content", "x-ms-blob-type", "BlockBlob", "x-ms-blob-content-encoding", "br")
		require.Equal(t, 201, r.StatusCode, r.Text)
		b, ok := h.Blob(l.BlobName)
		require.True(t, ok)
		require.Equal(t, "br", b.ContentEncoding)
		r = hubtest.NewStorage(t, h).Request("GET", "/uploads/"+l.BlobName, "")
		require.Equal(t, []string{"br", "content"}, []string{r.Header.Get("Content-Encoding"), r.Text})
	})
}

// A list agrees with a search of all names, whatever its pages.
func TestAListAgreesWithASearch(t *testing.T) {
	hubtest.InStorage(t, func(t *testing.T, h *testbroker.Hub, s *hubtest.Storage) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		has := make(map[string]bool)
		for range 400 {
			parts := []string{"a", "b", "a/a", "a/b", "a/b/c", "a-", "a0", "b/", "b/c", "c"}
			name := parts[rng.IntN(len(parts))] + fmt.Sprint(rng.IntN(9))
			switch rng.IntN(4) {
			case 0:
				s.Request("DELETE", "/store/c-1/"+name, "")
				delete(has, name)
			case 1: // a staged block makes no blob
				s.Request("PUT", "/store/c-1/"+name+"?comp=block&blockid=AAAA", "x")
			default:
				s.Put(name, "")
				has[name] = true
			}
		}
		for _, c := range []struct{ prefix, delimiter string }{{}, {"a", ""}, {"", "/"}, {"a", "/"}, {"a/", "/"}, {"b", "c"},
			{"q", "/"}} {
			var want []string
			for _, name := range slices.Sorted(maps.Keys(has)) {
				rest, ok := strings.CutPrefix(name, c.prefix)
				if before, _, found := strings.Cut(rest, c.delimiter); found && c.delimiter != "" {
					name = c.prefix + before + c.delimiter
				}
				if ok && !slices.Contains(want, name) {
					want = append(want, name)
				}
			}
			for most := 1; most < 6; most++ {
				require.Equal(t, want, blobsOf(s, c.prefix, c.delimiter, most, len(want)), "%+v, pages of %d", c, most)
			}
		}
	})
}

// blobsOf returns the names of a list with at most pages pages.
func blobsOf(s *hubtest.Storage, prefix, delimiter string, most, pages int) (all []string) {
	next := ""
	for range pages + 1 {
		query := url.Values{"prefix": {prefix}, "delimiter": {delimiter}, "maxresults": {strconv.Itoa(most)},
			"marker": {next}}
		body := s.Request("GET", "/store/c-1?restype=container&comp=list&"+query.Encode(), "").Text
		for _, part := range strings.Split(body, "<Name>")[1:] {
			name, _, _ := strings.Cut(part, "<")
			all = append(all, name)
		}
		_, next, _ = strings.Cut(body, "<NextMarker>")
		if next, _, _ = strings.Cut(next, "<"); next == "" {
			break
		}
	}
	return all
}

func TestAListHasPages(t *testing.T) {
	hubtest.InStorage(t, func(t *testing.T, h *testbroker.Hub, s *hubtest.Storage) {
		for _, name := range []string{"x/2", "x/1", "x/y/3", "z"} {
			s.Put(name, name, "x-ms-meta-n", "<"+name+">")
		}
		// A staged block makes no blob.
		require.Equal(t, 201, s.Request("PUT", "/store/c-1/a?comp=block&blockid=AAAA", "x").StatusCode)
		list := func(query string) (found []string, body string) {
			body = s.Request("GET", "/store/c-1?restype=container&comp=list"+query, "").Text
			for _, part := range strings.Split(body, "<Name>")[1:] {
				name, _, _ := strings.Cut(part, "<")
				found = append(found, name)
			}
			return found, body
		}
		names, body := list("&include=metadata")
		require.Equal(t, []string{"x/1", "x/2", "x/y/3", "z"}, names)
		require.Contains(t, body, "<Metadata><n>&lt;x/1&gt;</n></Metadata>")
		require.Contains(t, body, "<Content-Length>3</Content-Length>")
		names, body = list("&prefix=x%2F")
		require.Equal(t, []string{"x/1", "x/2", "x/y/3"}, names)
		require.NotContains(t, body, "<Metadata>")
		names, _ = list("&delimiter=%2F")
		require.Equal(t, []string{"x/", "z"}, names)
		names, body = list("&maxresults=1&prefix=q")
		require.Empty(t, names)
		require.Contains(t, body, "<Blobs></Blobs>", "clients want the element")

		var all []string
		for next, pages := "", 0; pages < 9; pages++ {
			names, body := list("&maxresults=1&delimiter=%2F&marker=" + next)
			all = append(all, names...)
			_, next, _ = strings.Cut(body, "<NextMarker>")
			if next, _, _ = strings.Cut(next, "<"); next == "" {
				break
			}
		}
		require.Equal(t, []string{"x/", "z"}, all)
		for query, code := range map[string]string{"&maxresults=0": "OutOfRangeQueryParameterValue",
			"&maxresults=x": "InvalidQueryParameterValue", "&marker=!": "InvalidQueryParameterValue",
			"&include=all": "InvalidQueryParameterValue", "&prefix=%01": "InvalidQueryParameterValue"} {
			s.Request("GET", "/store/c-1?restype=container&comp=list"+query, "").StoreRefused(t, 400, code)
		}

		url, err := h.ContainerURL("hub", "own", time.Hour)
		require.NoError(t, err)
		require.Contains(t, url, "https://hub/store/own?")
		body = s.Request("GET", "/store?comp=list", "").Text
		require.Contains(t, body, "<Name>c-1</Name>")
		require.Contains(t, body, "<Name>own</Name>")
		h.Reset()
		body = s.Request("GET", "/store?comp=list", "").Text
		require.NotContains(t, body, "<Name>c-1</Name>")
		require.Contains(t, body, "<Name>own</Name>", "the hub's owner has made it")
	})
}

// Shared access signatures are for one container, for some rights and for a time.
func TestSignaturesOfContainers(t *testing.T) {
	hubtest.InStorage(t, func(t *testing.T, h *testbroker.Hub, s *hubtest.Storage) {
		s.Put("a", "1")
		anonymous := hubtest.NewPoster(t, h.Dial(testbroker.PortHTTP), nil, "")
		sign := s.Sign
		soon := time.Now().UTC().Add(time.Hour).Format(time.RFC3339)
		all := func(rights string) string { return "sr=c&sv=2020-12-06&sp=" + rights + "&se=" + soon }
		try := func(method, path, sas, more string, header ...string) hubtest.Reply {
			return anonymous.Do(method, path+sas+more, "", append(header, "x-ms-version", "2021-12-02")...)
		}
		require.Equal(t, "1", try("GET", "/store/c-1/a", sign(all("r")), "").Text)
		require.Equal(t, "1", try("GET", "/store/c-1/a", sign("sr=c&sv=2018-11-09&sp=r&se="+soon), "").Text)
		for sas, code := range map[string]string{
			sign(all("w")):                                      "AuthorizationPermissionMismatch",
			sign(all("r") + "&sip=127.0.0.1"):                   "AuthenticationFailed",
			sign(all("r") + "&si=policy"):                       "AuthenticationFailed",
			sign(all("r") + "&st=" + soon):                      "AuthenticationFailed",
			sign(all("r") + "&st=soon"):                         "AuthenticationFailed",
			sign("sr=c&sv=2020-12-06&sp=r&se=2000-01-01"):       "AuthenticationFailed",
			sign("sr=c&sv=2020-12-06&sp=r"):                     "AuthenticationFailed",
			sign("sr=c&sp=r&se=" + soon):                        "AuthenticationFailed",
			strings.Replace(sign(all("r")), "sp=r", "sp=rw", 1): "AuthenticationFailed",
			sign(all("r") + "&spr=https"):                       "AuthorizationProtocolMismatch",
		} {
			try("GET", "/store/c-1/a", sas, "").StoreRefused(t, 403, code)
		}
		try("GET", "/store/c-1/a", sign(all("r")+"&rscc=a%0Ab"), "").StoreRefused(t, 400, "InvalidQueryParameterValue")
		require.Equal(t, 201, s.Request("PUT", "/store/c-2?restype=container", "").StatusCode)
		try("GET", "/store/c-2/a", sign(all("r")), "").StoreRefused(t, 403, "AuthenticationFailed")
		try("GET", "/store/c-1/a", "", "").StoreRefused(t, 401, "NoAuthenticationInformation")
		// Only the account's key makes, deletes and shows containers.
		try("DELETE", "/store/c-1", sign(all("racwdl")), "&restype=container").StoreRefused(t, 403,
			"AuthorizationPermissionMismatch")
		try("GET", "/store/c-1", sign(all("racwdl")), "&restype=container").StoreRefused(t, 403,
			"AuthorizationPermissionMismatch")
		// The right to create is not that to overwrite.
		require.Equal(t, 201, try("PUT", "/store/c-1/b", sign(all("c")), "", "x-ms-blob-type", "BlockBlob").StatusCode)
		try("PUT", "/store/c-1/b", sign(all("c")), "", "x-ms-blob-type", "BlockBlob").StoreRefused(t, 403,
			"UnauthorizedBlobOverwrite")
		made, err := h.ContainerURL("any.example.test", "c-1", time.Hour)
		require.NoError(t, err)
		require.Equal(t, "1", try("GET", "/store/c-1/a", made[strings.Index(made, "?"):], "").Text)
		time.Sleep(time.Hour)
		try("GET", "/store/c-1/a", sign(all("r")), "").StoreRefused(t, 403, "AuthenticationFailed")
	})
}

// manyMetadata returns the headers of n metadata.
func manyMetadata(n int) (header []string) {
	for i := range n {
		header = append(header, fmt.Sprintf("x-ms-meta-a%d", i), "")
	}
	return header
}

func TestTheStoreRefusesBadRequests(t *testing.T) {
	hubtest.InStorage(t, func(t *testing.T, h *testbroker.Hub, s *hubtest.Storage) {
		const blob = "x-ms-blob-type"
		for _, c := range []struct {
			method, path string
			header       []string
			status       int
			code         string
		}{
			{"PUT", "/store/c-1?restype=container", nil, 409, "ContainerAlreadyExists"},
			{"PUT", "/store/uploads?restype=container", nil, 409, "ContainerAlreadyExists"},
			{"PUT", "/store/UPPER?restype=container", nil, 400, "InvalidResourceName"},
			{"PUT", "/store/a--b?restype=container", nil, 400, "InvalidResourceName"},
			{"PUT", "/store/ab?restype=container", nil, 400, "InvalidResourceName"},
			{"PUT", "/store/abc?restype=container", []string{"x-ms-blob-public-access", "blob"}, 400, "UnsupportedHeader"},
			{"GET", "/store/none?restype=container", nil, 404, "ContainerNotFound"},
			{"GET", "/store/none?restype=container&comp=list", nil, 404, "ContainerNotFound"},
			{"GET", "/store/none/a", nil, 404, "ContainerNotFound"},
			{"DELETE", "/store/none?restype=container", nil, 404, "ContainerNotFound"},
			{"GET", "/store/c-1", nil, 400, "InvalidQueryParameterValue"},
			{"GET", "/store/c-1/a?comp=tags", nil, 400, "InvalidQueryParameterValue"},
			{"GET", "/store?comp=properties", nil, 400, "InvalidQueryParameterValue"},
			{"PUT", "/store/c-1/a%01b", []string{blob, "BlockBlob"}, 400, "InvalidResourceName"},
			{"PUT", "/store/c-1/a%0Ab", []string{blob, "BlockBlob"}, 400, "InvalidResourceName"},
			{"PUT", "/store/c-1/a%EF%BF%BEb", []string{blob, "BlockBlob"}, 400, "InvalidResourceName"},
			{"PUT", "/store/c-1/a/../b", []string{blob, "BlockBlob"}, 400, "InvalidResourceName"},
			{"PUT", "/store/c-1/a", []string{blob, "PageBlob"}, 400, "UnsupportedHeader"},
			{"PUT", "/store/c-1/a", []string{blob, "BlockBlob", "x-ms-tags", "a=b"}, 400, "UnsupportedHeader"},
			{"PUT", "/store/c-1/a", []string{blob, "BlockBlob", "x-ms-lease-id", "1"}, 412,
				"LeaseNotPresentWithBlobOperation"},
			{"PUT", "/store/c-1/a", []string{blob, "BlockBlob", "x-ms-meta-a-b", "1"}, 400, "InvalidMetadata"},
			{"PUT", "/store/c-1/a", []string{blob, "BlockBlob", "x-ms-meta-", "1"}, 400, "EmptyMetadataKey"},
			{"PUT", "/store/c-1/a", []string{blob, "BlockBlob", "x-ms-meta-a", strings.Repeat("x", 8<<10)}, 400,
				"MetadataTooLarge"},
			{"PUT", "/store/c-1/a", []string{blob, "BlockBlob", "x-ms-copy-source", "https://a.example.test"}, 400,
				"UnsupportedHeader"},
			{"PUT", "/store/c-1/a", []string{blob, "BlockBlob", "Cache-Control", strings.Repeat("k", 1025)}, 400,
				"InvalidHeaderValue"},
			{"PUT", "/store/c-1/a", append(manyMetadata(65), blob, "BlockBlob"), 400, "MetadataTooLarge"},
			{"PUT", "/store/c-1/a", []string{blob, "BlockBlob", "x-ms-blob-content-type", strings.Repeat("k", 1025)}, 400,
				"InvalidHeaderValue"},
			{"GET", "/store/c-1/a", []string{"x-ms-date", "yesterday"}, 403, "AuthenticationFailed"},
			{"GET", "/store/c-1/a", []string{"x-ms-date", time.Now().UTC().Add(-16 * time.Minute).Format(http.TimeFormat)}, 403,
				"AuthenticationFailed"},
		} {
			s.Request(c.method, c.path, "", c.header...).StoreRefused(t, c.status, c.code)
		}
		s.Request("PUT", "/store/c-1/a?comp=block&blockid=AAAA"+strings.Repeat("%0D", 85), "x").StoreRefused(t, 400,
			"InvalidQueryParameterValue")
		s.Request("PUT", "/store/c-1/a?comp=block&blockid="+strings.Repeat("AAAA", 23), "x").StoreRefused(t, 400,
			"InvalidBlockId")
		require.Equal(t, 201, s.Request("PUT", "/store/c-1/a?comp=block&blockid="+strings.Repeat("A", 84)+"AA%3D%3D",
			"x").StatusCode)
		s.Put("a", "", append(manyMetadata(64), "x-ms-blob-content-type", strings.Repeat("k", 1024))...)
		s.Do("GET", "/store/c-1/a", "", "Authorization", "SharedKey store").StoreRefused(t, 400, "InvalidAuthenticationInfo")
		s.Key = []byte("another")
		s.Request("GET", "/store/c-1/a", "").StoreRefused(t, 403, "AuthenticationFailed")
		_, err := h.ContainerURL("hub", "Bad", time.Hour)
		require.ErrorContains(t, err, "lower-case letters")
	})
}

// No client makes the hub grow without limit.
func TestContainersAreBounded(t *testing.T) {
	if !testkit.Long() {
		t.Skip("SKIPPED: some 700 MB of blobs; HUBLINE_LONG=1 has them")
	}
	hubtest.InStorage(t, func(t *testing.T, _ *testbroker.Hub, s *hubtest.Storage) {
		for i := range 99 {
			require.Equal(t, 201, s.Request("PUT", fmt.Sprintf("/store/more-%d?restype=container", i), "").StatusCode)
		}
		s.Request("PUT", "/store/more-99?restype=container", "").StoreRefused(t, 413, "RequestBodyTooLarge")
		block := strings.Repeat("x", 64<<20)
		for range 3 {
			require.Equal(t, 201, s.Request("PUT", "/store/c-1/a?comp=block&blockid=AAAA", block).StatusCode, "it is replaced")
		}
		// A file of the same block many times counts with its whole size.
		r := s.Request("PUT", "/store/c-1/a?comp=blocklist",
			"<BlockList>"+strings.Repeat("<Latest>AAAA</Latest>", 5)+"</BlockList>")
		r.StoreRefused(t, 413, "RequestBodyTooLarge")
		for i := range 2 {
			s.Put(strconv.Itoa(i), block)
		}
		s.Request("PUT", "/store/c-1/more", block, "x-ms-blob-type", "BlockBlob").StoreRefused(t, 413, "RequestBodyTooLarge")
		require.Equal(t, 202, s.Request("DELETE", "/store/c-1/0", "").StatusCode)
		s.Put("more", block)
		require.Equal(t, 202, s.Request("DELETE", "/store/c-1?restype=container", "").StatusCode)
		require.Equal(t, 201, s.Request("PUT", "/store/c-1?restype=container", "").StatusCode)
		for i := range 3 {
			s.Put(strconv.Itoa(i), block)
		}
	})
}

func TestAContainerHasSoManyBlobs(t *testing.T) {
	if !testkit.Long() {
		t.Skip("SKIPPED: 10,000 blobs; HUBLINE_LONG=1 has them")
	}
	hubtest.InStorage(t, func(t *testing.T, _ *testbroker.Hub, s *hubtest.Storage) {
		for i := range 10_000 {
			s.Put(strconv.Itoa(i), "")
		}
		s.Request("PUT", "/store/c-1/more", "", "x-ms-blob-type", "BlockBlob").StoreRefused(t, 413, "RequestBodyTooLarge")
		s.Put("0", "it exists")
	})
}
