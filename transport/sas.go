package transport

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/texts"
)

// SharedKey returns a signer for Credentials.Sign with the given key, in base64 as a hub shows it.
// The error, of Kind Invalid, does not contain the key.
func SharedKey(base64Key string) (func(ctx context.Context, text []byte) ([]byte, error), error) {
	key, err := base64.StdEncoding.DecodeString(base64Key)
	if err != nil || len(key) == 0 {
		return nil, &Error{Kind: Invalid, Op: OpOpen, Err: errors.New("the shared access key is not base64; copy it whole, " +
			"with its '=' at the end")}
	}
	return func(_ context.Context, text []byte) ([]byte, error) {
		mac := hmac.New(sha256.New, key)
		mac.Write(text)
		return mac.Sum(nil), nil
	}, nil
}

// SignToken makes a shared access signature for resource (not yet percent-encoded) that is valid
// until expires, truncated to whole seconds. keyName is the policy whose key sign uses, empty for
// the resource's own key. The error is sign's.
//
// Source: "Control access to IoT Hub by using shared access signatures": HMAC-SHA256 over
// "percent-encoded resource LF expiry".
func SignToken(ctx context.Context, sign func(context.Context, []byte) ([]byte, error), resource, keyName string,
	expires time.Time) (Token, error) {
	seconds := expires.Unix()
	toSign := texts.AppendEscaped(make([]byte, 0, 2*len(resource)+16), resource)
	encoded := len(toSign)
	toSign = append(toSign, '\n')
	toSign = strconv.AppendInt(toSign, seconds, 10)
	mac, err := sign(ctx, toSign)
	if err != nil {
		return Token{}, err
	}

	sig := base64.StdEncoding.EncodeToString(mac)
	text := make([]byte, 0, len("SharedAccessSignature sr=&sig=&se=&skn=")+len(toSign)+texts.EscapedSize(sig)+
		texts.EscapedSize(keyName))
	text = append(text, "SharedAccessSignature sr="...)
	text = append(text, toSign[:encoded]...)
	text = append(text, "&sig="...)
	text = texts.AppendEscaped(text, sig)
	text = append(text, "&se="...)
	text = append(text, toSign[encoded+1:]...)
	if keyName != "" {
		text = append(text, "&skn="...)
		text = texts.AppendEscaped(text, keyName)
	}
	return Token{Text: Hide(string(text)), Expires: time.Unix(seconds, 0)}, nil
}
