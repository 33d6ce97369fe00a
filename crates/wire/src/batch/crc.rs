//! CRC-32C of joined parts without a second pass over their bytes.

/// The Castagnoli polynomial, bits reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `x^0` in reflected form.
const ONE: u32 = 1 << 31;

/// `x^(2^k)` modulo the polynomial, for every power that a 64 bit length in bits can need.
const POWERS: [u32; 67] = powers();

const fn powers() -> [u32; 67] {
    let mut table = [0; 67];
    let mut power = 1 << 30;
    let mut k = 0;
    while k < table.len() {
        table[k] = power;
        power = multiply(power, power);
        k += 1;
    }
    table
}

/// `a * b` modulo the polynomial.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut bit = ONE;
    let mut product = 0;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
            if a & (bit - 1) == 0 {
                break;
            }
        }
        bit >>= 1;
        b = if b & 1 == 0 {
            b >> 1
        } else {
            (b >> 1) ^ POLYNOMIAL
        };
    }
    product
}

/// CRC-32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC-32C of two joined parts, of which the second is `second_len` bytes long.
///
/// Takes well under a microsecond whatever the length, unlike the matrix method.
#[must_use]
pub const fn combine(first: u32, second: u32, second_len: u64) -> u32 {
    shift(first, second_len) ^ second
}

/// What `len` zero bytes make of `crc`, without the inversions at both ends.
const fn shift(crc: u32, mut len: u64) -> u32 {
    let mut factor = ONE;
    // Powers start at x^8: a length is counted in bytes.
    let mut k = 3;
    while len != 0 {
        if len & 1 != 0 {
            factor = multiply(POWERS[k], factor);
        }
        len >>= 1;
        k += 1;
    }
    multiply(factor, crc)
}

/// CRC-32C of bytes whose first part is replaced by another of the same length.
///
/// `whole` is the CRC of all, `old` and `new` those of the first part, `rest_len` the length of
/// what follows it.
#[must_use]
pub const fn replace_head(whole: u32, old: u32, new: u32, rest_len: u64) -> u32 {
    shift(old ^ new, rest_len) ^ whole
}
