#!/usr/bin/env bash
# Makes the certificates and keys for tests with openssl. The keys are public, so they must not be used for anything else.
set -euo pipefail
cd "$(dirname "$0")"
days=36500
rm -rf certificates keys

key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key"; }

# issue <name> <subject> <alternative names> <usage>
issue() {
    openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days $days -out "$1.pem" \
        -extfile <(printf 'basicConstraints=CA:FALSE\nextendedKeyUsage=%s\n%s' "$4" "${3:+subjectAltName=$3}") 2> /dev/null
    rm "$1.csr"
}

key ca
openssl req -new -x509 -key ca.key -subj "/CN=Rookery tests" -days $days -out ca.pem \
    -addext "keyUsage=critical,keyCertSign,cRLSign"
key localhost
issue localhost "/CN=localhost" "DNS:localhost,IP:127.0.0.1" serverAuth
cat ca.pem >> localhost.pem
key other
issue other "/CN=other" "DNS:example.test,DNS:*.wild.test" serverAuth
cat ca.pem >> other.pem
key address
issue address "/O=no host" "IP:203.0.113.7,IP:2001:db8::7" serverAuth
cat ca.pem >> address.pem
openssl genpkey -quiet -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out rsa.key
issue rsa "/CN=rsa" "DNS:rsa.test" serverAuth
cat ca.pem >> rsa.pem
key client
issue client "/C=GB/O=Engines, Analytical/CN=Ada" "" clientAuth
key stranger
openssl req -new -x509 -key stranger.key -subj "/CN=stranger" -days $days -out stranger.pem
# Keys and certificates in formats that the server rejects.
openssl pkey -in localhost.key -aes256 -passout pass:secret -out encrypted.key
openssl ec -in localhost.key -aes256 -passout pass:secret -out encrypted-traditional.key 2> /dev/null
openssl x509 -in localhost.pem -outform DER -out localhost.der
openssl pkey -in localhost.key -outform DER -out localhost-key.der
openssl pkcs12 -export -in localhost.pem -inkey localhost.key -passout pass: -out localhost.p12
# dated <name> <from> <to>
dated() {
    key "$1"
    openssl req -new -key "$1.key" -subj "/CN=localhost" -out "$1.csr"
    : > index
    echo 01 > serial
    openssl ca -batch -selfsign -keyfile "$1.key" -in "$1.csr" -out "$1.pem" -notext -startdate "$2" -enddate "$3" -config <(
        printf '[ca]\ndefault_ca=d\n[d]\ndatabase=index\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\nx509_extensions=e\n[e]\nbasicConstraints=CA:FALSE\n[p]\ncommonName=supplied\n'
    ) 2> /dev/null
    rm -f "$1.csr" index* serial* 01.pem
}
dated expired 20200101000000Z 20210101000000Z
dated future 20900101000000Z 20910101000000Z
rm -f ca.srl
mkdir certificates keys
mv ./*.key localhost-key.der keys
mv ./*.pem ./*.der ./*.p12 certificates
