package hubtest

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/stretchr/testify/require"
)

// A Leave is the hub's answer to an upload request.
type Leave struct {
	CorrelationID, HostName, ContainerName, BlobName, SASToken string
}

// BeginUpload asks for an upload of dev-1.
func BeginUpload(p *Poster, name string) Leave {
	p.T.Helper()
	body, err := json.Marshal(map[string]string{"blobName": name})
	require.NoError(p.T, err)
	r := p.Post("/devices/dev-1/files"+Version, string(body))
	require.Equal(p.T, 200, r.StatusCode, r.Text)
	var l Leave
	require.NoError(p.T, json.Unmarshal([]byte(r.Text), &l))
	return l
}

// URI returns the upload URI without the host, with more appended to its query.
func (l Leave) URI(more string) string {
	return (&url.URL{Path: "/" + l.ContainerName + "/" + l.BlobName}).EscapedPath() + l.SASToken + more
}

// PutUpload sends a PUT to the upload URI, with more appended to its query.
func PutUpload(p *Poster, l Leave, more, body string, header ...string) Reply {
	p.T.Helper()
	return p.Do(http.MethodPut, l.URI(more), body, append([]string{"Host", l.HostName, "x-ms-version", "2019-12-12"},
		header...)...)
}

// PutBlob uploads a content in a single request.
func PutBlob(p *Poster, l Leave, body string) {
	p.T.Helper()
	r := PutUpload(p, l, "", body, "x-ms-blob-type", "BlockBlob")
	require.Equal(p.T, 201, r.StatusCode, r.Text)
}

// EndUpload reports the end of an upload.
func EndUpload(p *Poster, body string) Reply {
	p.T.Helper()
	return p.Post("/devices/dev-1/files/notifications"+Version, body)
}
