package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/update"
	"github.com/hubline-iot/hubline/update/edsign"
)

const (
	storageHost = "storage.example.com"
	model       = "roof-sensor"
)

// publisher is the build server. It signs images and puts them into the hub's storage.
type publisher struct {
	key         ed25519.PrivateKey
	client      *http.Client
	path, query string // of the container
}

func newPublisher(_ context.Context, hub *testbroker.Hub) (*publisher, error) {
	container, err := hub.ContainerURL(storageHost, "firmware", time.Hour)
	if err != nil {
		return nil, err
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	path, query, _ := strings.Cut(strings.TrimPrefix(container, "https://"+storageHost), "?")
	dial := hub.Dial(testbroker.PortHTTP)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) { return dial(ctx, network, addr) }}}
	return &publisher{key, client, path, query}, nil
}

// publish stores an image and returns the desired properties that name it.
func (p *publisher) publish(ctx context.Context, version uint32, works, forged bool) (desired string, err error) {
	content := newImage(version, works)
	path := fmt.Sprintf("%s/%d.bin?%s", p.path, version, p.query)
	q, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+storageHost+path, bytes.NewReader(content))
	if err != nil {
		return "", err
	}
	q.Header.Set("x-ms-blob-type", "BlockBlob")
	a, err := p.client.Do(q)
	if err != nil {
		return "", err
	}
	defer a.Body.Close()
	if _, err := io.Copy(io.Discard, a.Body); err != nil || a.StatusCode != http.StatusCreated {
		return "", fmt.Errorf("storage answered with %s (%w)", a.Status, err)
	}
	key := p.key
	if forged {
		if _, key, err = ed25519.GenerateKey(rand.Reader); err != nil {
			return "", err
		}
	}
	manifest, err := edsign.Sign(key, &update.Manifest{Model: model, Image: image(version, content)})
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"update": order{string(manifest), path}})
	return string(text), err
}

// order is the desired property.
type order struct {
	Manifest string `json:"manifest"`
	Path     string `json:"path"`
}

func image(version uint32, content []byte) update.Image {
	return update.Image{Version: version, Size: int64(len(content)), SHA256: sha256.Sum256(content)}
}

// newImage returns a firmware: its first byte is its version, its second one says whether it works.
func newImage(version uint32, works bool) []byte {
	b := make([]byte, 50_000)
	rand.Read(b) // never fails
	b[0], b[1] = byte(version), 0
	if works {
		b[1] = 1
	}
	return b
}
