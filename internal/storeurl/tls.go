package storeurl

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// Files are the parameters of TLS: ca_file, cert_file, key_file, server_name.
type Files struct{ ca, cert, key, name string }

// TLS reads them.
func (p *Parameters) TLS() Files {
	return Files{ca: p.Text("ca_file"), cert: p.Text("cert_file"), key: p.Text("key_file"), name: p.Text("server_name")}
}

// Given reports whether there are any.
func (f Files) Given() bool { return f != Files{} }

// Config is the configuration for all servers of a URL. Without server_name it names
// none: whoever dials verifies the host that is dialed, as [tls.Dialer] does.
// The certificate of the client is read anew for each connection, so that a
// rotated one is picked up; the authority's is read once.
func (f Files) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.name}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, Invalid("ca_file has no certificate in PEM")
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, Invalid("cert_file and key_file need each other")
	}
	if f.cert != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(f.cert, f.key)
			return &pair, err
		}
		if _, err := load(); err != nil {
			return nil, fmt.Errorf("cert_file and key_file: %w", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return c, nil
}
