package storeurl

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writePair writes a certificate that signs itself, with that serial number, and its key.
func writePair(t *testing.T, serial int64, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
	public, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: public}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func files(t *testing.T, parameters map[string]string) Files {
	t.Helper()
	values := url.Values{}
	for name, v := range parameters {
		values.Set(name, v)
	}
	u, err := Parse("rediss://a?"+values.Encode(), "6379", "rediss")
	if err != nil {
		t.Fatal(err)
	}
	f := u.Parameters.TLS()
	if err := u.Parameters.Done(); err != nil {
		t.Fatal(err)
	}
	return f
}

// The name of one server is not asked of all: each has a certificate of its own.
func TestTLSNamesNoServerUnlessTold(t *testing.T) {
	none := files(t, nil)
	if none.Given() {
		t.Error("no file is given, but it says so")
	}
	c, err := none.Config()
	if err != nil || c.ServerName != "" || c.RootCAs != nil || c.GetClientCertificate != nil || c.InsecureSkipVerify {
		t.Errorf("without parameters: got %+v, %v", c, err)
	}
	named := files(t, map[string]string{"server_name": "other.example"})
	if c, err := named.Config(); err != nil || !named.Given() || c.ServerName != "other.example" || c.InsecureSkipVerify {
		t.Errorf("with server_name: got %+v, %v", c, err)
	}
}

func TestTLSReadsItsFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key, text := filepath.Join(dir, "cert"), filepath.Join(dir, "key"), filepath.Join(dir, "text")
	writePair(t, 1, cert, key)
	if err := os.WriteFile(text, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := files(t, map[string]string{"ca_file": cert, "cert_file": cert, "key_file": key}).Config()
	if err != nil || c.RootCAs == nil || c.GetClientCertificate == nil {
		t.Fatalf("got %+v, %v", c, err)
	}
	pool := x509.NewCertPool()
	if b, err := os.ReadFile(cert); err != nil || !pool.AppendCertsFromPEM(b) || !pool.Equal(c.RootCAs) {
		t.Errorf("the authority is not that of the file: %v", err)
	}
	for serial := int64(1); serial <= 2; serial++ { // the second one replaces the first
		writePair(t, serial, cert, key)
		pair, err := c.GetClientCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil || leaf.SerialNumber.Int64() != serial {
			t.Errorf("got certificate %v, %v, want %d", leaf.SerialNumber, err, serial)
		}
	}
	for what, wrong := range map[string]map[string]string{
		"ca_file has no certificate": {"ca_file": text},
		"ca_file: open":              {"ca_file": text + "none"},
		"cert_file and key_file: ":   {"cert_file": text, "key_file": key},
		"need each other":            {"key_file": key},
	} {
		if c, err := files(t, wrong).Config(); c != nil || err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v: got %v, want %q", wrong, err, what)
		}
	}
	if _, err := files(t, map[string]string{"ca_file": text + "none"}).Config(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: got %v, want fs.ErrNotExist", err)
	}
}
