//go:build !tinygo

package transport_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// The credentials of a device, a message, and a failure by its kind.
func Example() {
	sign, err := transport.SharedKey("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	if err != nil {
		fmt.Println(err)
		return
	}
	creds := &transport.Credentials{Host: "hub1.example.test", DeviceID: "dev-1", Sign: sign}
	fmt.Println("credentials:", creds.Validate())

	m := &transport.Message{ID: "1", Body: make([]byte, 300_000)}
	err = m.Validate() // as Send and Enqueue do before anything is sent
	fmt.Println(err)
	fmt.Println(errors.Is(err, transport.TooLarge))
	// Output:
	// credentials: <nil>
	// send: too large: message of 300001 bytes is over the limit of 262144; split it or upload it as a file
	// true
}

// Credentials from a key: each dial signs a fresh token.
func ExampleCredentials() {
	sign, err := transport.SharedKey("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	if err != nil {
		fmt.Println(err)
		return
	}
	creds := &transport.Credentials{
		Host:     "hub1.example.test",
		DeviceID: "dev-1",
		Sign:     sign,
		Now:      func() time.Time { return time.Unix(1893452400, 0) }, // a real device uses time.Now
	}
	token, err := creds.NewToken(context.Background())
	fmt.Println(creds.Validate(), err)
	fmt.Println(token)
	// Output:
	// <nil> <nil>
	// token (hidden, expires 1893456000)
}

// The key may live in a secure element: Sign is any function that computes the HMAC.
func ExampleCredentials_secureElement() {
	creds := &transport.Credentials{
		Host:     "hub1.example.test",
		DeviceID: "dev-1",
		Sign: func(ctx context.Context, text []byte) ([]byte, error) {
			return nil, errors.New("slot 3 is empty")
		},
		Now: func() time.Time { return time.Unix(1893452400, 0) },
	}
	_, err := creds.NewToken(context.Background())
	fmt.Println(err)
	fmt.Println(errors.Is(err, transport.Unauthorized))
	// Output:
	// dial: unauthorized: slot 3 is empty
	// true
}

func ExampleSharedKey() {
	_, err := transport.SharedKey("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	fmt.Println(err)
	_, err = transport.SharedKey("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	fmt.Println(err)
	// Output:
	// <nil>
	// open: invalid: the shared access key is not base64; copy it whole, with its '=' at the end
}

func ExampleSignToken() {
	sign, err := transport.SharedKey("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	if err != nil {
		fmt.Println(err)
		return
	}
	token, err := transport.SignToken(context.Background(), sign, "hub1.example.test/devices/dev-1", "",
		time.Unix(1893456000, 0))
	fmt.Println(err)
	fmt.Println(token)               // safe to log
	fmt.Println(token.Text.Reveal()) // the text on the wire
	// Output:
	// <nil>
	// token (hidden, expires 1893456000)
	// SharedAccessSignature sr=hub1.example.test%2Fdevices%2Fdev-1&sig=D3YPCbjg9OEBgbkWVCXmOeKhVVkbOo7jR%2BVPYEFxF5w%3D&se=1893456000
}

// refused stands for a protocol's error type.
type refused struct{ code byte }

func (r *refused) Error() string { return fmt.Sprintf("CONNACK %d", r.code) }

// errors.Is finds an error's kind, errors.As the protocol's error.
func ExampleError() {
	err := fmt.Errorf("start-up: %w", &transport.Error{
		Kind: transport.Unavailable, Scope: transport.ScopeConnection, Op: transport.OpDial, Proto: "mqtt", Err: &refused{3},
	})
	fmt.Println(err)
	fmt.Println(errors.Is(err, transport.Unavailable), errors.Is(err, transport.Network))
	var detail *refused
	if errors.As(err, &detail) {
		fmt.Println("code", detail.code)
	}
	// Output:
	// start-up: mqtt dial: service unavailable: CONNACK 3
	// true false
	// code 3
}

// A kind is an error itself, and KindOf reads it without reflection.
func ExampleKind() {
	var err error = transport.Throttled
	fmt.Println(err)
	switch transport.KindOf(fmt.Errorf("send: %w", err)) {
	case transport.Throttled, transport.Quota:
		fmt.Println("send less")
	}
	// Output:
	// throttled
	// send less
}

func ExampleMessage_Validate() {
	m := &transport.Message{Body: []byte(`{"t":21.5}`), Properties: []transport.Property{{Name: "message-id", Value: "7"}}}
	fmt.Println(m.Validate())
	m.ID, m.Properties = "7", nil
	fmt.Println(m.Validate(), m.Size())
	// Output:
	// send: invalid: message property name "message-id" is reserved by the hub; use the Message's own field or another name
	// <nil> 11
}
