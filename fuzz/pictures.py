"""Small picture files for fuzzing, written and cut byte by byte with the standard library only."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator

Size = tuple[int, int]

# JPEG markers (ITU-T T.81, table B.1).
SOI, EOI, SOS, DNL, DHT, JPG, DAC = 0xD8, 0xD9, 0xDA, 0xDC, 0xC4, 0xC8, 0xCC
FRAME_HEADERS = frozenset(range(0xC0, 0xD0)) - {DHT, JPG, DAC}
STANDALONE = frozenset(range(0xD0, 0xD8)) | {SOI, 0x01}

# Bytes of a scan that are kept beyond its share of the picture: tables of statistics even out.
SCAN_RESERVE = 64

EXIF_ORIENTATION = 0x0112
SHORT = 3  # EXIF's type of a 16-bit number.


def noise(name: str, size: int) -> bytes:
    return random.Random(name).randbytes(size)


def shrink_jpeg(data: bytes, size: Size) -> bytes | None:
    """The upper left of a JPEG, roughly: another size in its header, and of each scan only as much
    as such a picture needs. None where there is no frame header, or the picture is no larger."""
    out, at, share = [data[:2]], 2, None
    while (at := data.find(b"\xff", at)) >= 0 and at + 4 <= len(data):
        marker = data[at + 1]
        if marker in STANDALONE or marker in (0x00, 0xFF):
            at += 1
            continue
        if marker == EOI:
            break
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        segment = data[at:end]
        if marker in FRAME_HEADERS:
            height, width = struct.unpack(">HH", segment[5:9])
            share = (size[0] * size[1]) / max(width * height, 1)
            if share >= 1:
                return None
            segment = segment[:5] + struct.pack(">HH", size[1], size[0]) + segment[9:]
        out.append(segment)
        at = end
        if marker == SOS and share:
            stop = scan_end(data, end)
            keep = data[end : min(stop, end + int((stop - end) * share) + SCAN_RESERVE)]
            out.append(keep.rstrip(b"\xff"))
            at = stop
    return b"".join(out) + bytes((0xFF, EOI)) if share else None


def scan_end(data: bytes, at: int) -> int:
    """Where the entropy-coded data that begins at `at` ends: at a marker that is no restart."""
    while (at := data.find(b"\xff", at)) >= 0 and at + 1 < len(data):
        if data[at + 1] not in STANDALONE and data[at + 1] not in (0x00, 0xFF):
            return at
        at += 2
    return len(data)


def with_exif(jpeg: bytes, orientation: int) -> bytes:
    """The JPEG with an EXIF segment that asks for a turn."""
    return jpeg[:2] + exif_segment(orientation) + jpeg[2:]


def exif(orientation: int) -> bytes:
    """A TIFF directory of one entry, big-endian."""
    entry = struct.pack(">HHIHH", EXIF_ORIENTATION, SHORT, 1, orientation, 0)
    return b"MM\0*" + struct.pack(">IH", 8, 1) + entry + bytes(4)


def exif_segment(orientation: int) -> bytes:
    body = b"Exif\0\0" + exif(orientation)
    return b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body


# PNG: channels by colour type, and the depths that each may have (specification, table 11.1).
PNG_KINDS = {
    0: (1, (1, 2, 4, 8, 16)),
    2: (3, (8, 16)),
    3: (1, (1, 2, 4, 8)),
    4: (2, (8, 16)),
    6: (4, (8, 16)),
}
# Adam7: first column and row, step between columns and rows (section 8.2).
PASSES = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(
    width: int,
    height: int,
    colour: int,
    depth: int,
    *,
    interlaced: bool = False,
    extra: bytes = b"",
) -> bytes:
    """A PNG of noise; every byte sequence is some picture. `extra` chunks stand before the data."""
    bits = PNG_KINDS[colour][0] * depth
    passes = PASSES if interlaced else ((0, 0, 1, 1),)
    rows = []
    for x, y, dx, dy in passes:
        columns, lines = -(-(width - x) // dx), -(-(height - y) // dy)
        if columns > 0:
            line = -(-columns * bits // 8)
            # The five filters in turn.
            rows += [bytes([i % 5]) + noise(f"{colour}{depth}{i}", line) for i in range(lines)]
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    palette = chunk(b"PLTE", noise("palette", 3 << depth)) if colour == 3 else b""
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            palette,
            extra,
            # Stored, not compressed: the same bytes from every version of zlib.
            chunk(b"IDAT", zlib.compress(b"".join(rows), 0)),
            chunk(b"IEND", b""),
        )
    )


def pngs() -> Iterator[tuple[str, bytes]]:
    for colour, (_, depths) in PNG_KINDS.items():
        for depth in depths:
            yield f"{colour}-{depth}.png", png(19, 11, colour, depth)
            yield f"{colour}-{depth}-adam7.png", png(19, 11, colour, depth, interlaced=True)
    yield "large.png", png(100, 60, 0, 8)
    extras = {
        "trns-palette": (3, 4, chunk(b"tRNS", noise("trns", 9))),
        "trns-gray": (0, 8, chunk(b"tRNS", b"\0\x07")),
        "trns-rgb": (2, 8, chunk(b"tRNS", bytes(6))),
        "turned": (2, 8, chunk(b"eXIf", exif(6))),
        "text": (
            0,
            8,
            chunk(b"tEXt", b"Title\0none") + chunk(b"zTXt", b"a\0\0" + zlib.compress(b"b" * 99, 0)),
        ),
        "profile": (2, 8, chunk(b"iCCP", b"p\0\0" + zlib.compress(noise("icc", 200), 0))),
        "gamma": (2, 8, chunk(b"gAMA", struct.pack(">I", 45455)) + chunk(b"sRGB", b"\0")),
        "animated": (2, 8, chunk(b"acTL", struct.pack(">II", 2, 0))),
    }
    for name, (colour, depth, extra) in extras.items():
        yield f"{name}.png", png(19, 11, colour, depth, extra=extra)


def bmp(
    width: int,
    height: int,
    bits: int,
    compression: int = 0,
    data: bytes | None = None,
    masks: bytes = b"",
) -> bytes:
    """A BMP with a BITMAPINFOHEADER; a negative height stands for rows from top to bottom."""
    palette = noise("palette", 4 << bits) if bits <= 8 else b""
    line = (width * bits + 31) // 32 * 4
    if data is None:
        data = noise(f"bmp{bits}", line * abs(height))
    header = struct.pack(
        "<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(data), 0, 0, 0, 0
    )
    start = 14 + len(header) + len(masks) + len(palette)
    file = b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start)
    return file + header + masks + palette + data


def bmps() -> Iterator[tuple[str, bytes]]:
    for bits in (1, 4, 8, 16, 24, 32):
        yield f"{bits}.bmp", bmp(19, 11, bits)
        yield f"{bits}-top-down.bmp", bmp(19, -11, bits)
    # Runs of 5 and 14, the end of a line each; then the end of the picture.
    runs = bytes((5, 1, 14, 2, 0, 0)) * 11 + bytes((0, 1))
    yield "rle8.bmp", bmp(19, 11, 8, 1, runs)
    yield "rle4.bmp", bmp(19, 11, 4, 2, runs)
    yield "rle8-jump.bmp", bmp(19, 11, 8, 1, bytes((0, 2, 3, 4, 0, 3, 1, 2, 3, 0, 0, 1)))
    yield "fields16.bmp", bmp(19, 11, 16, 3, masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F))
    yield "fields32.bmp", bmp(19, 11, 32, 3, masks=struct.pack("<III", 0xFF0000, 0xFF00, 0xFF))


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    """A WebP of these chunks, each padded to an even length."""
    body = b"".join(
        kind + struct.pack("<I", len(data)) + data + bytes(len(data) % 2) for kind, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def shrink_webp(data: bytes, size: Size) -> bytes:
    """A lossy WebP with another size in its frame header (RFC 6386, section 9.1)."""
    frame = data.find(b"\x9d\x01\x2a") + 3
    return data[:frame] + struct.pack("<HH", *size) + data[frame + 4 :]


def vp8l(width: int, height: int) -> bytes:
    """A lossless WebP of one colour: each of its five prefix codes has one symbol."""
    bits, count = 0, 0

    def put(value: int, length: int) -> None:
        nonlocal bits, count
        bits, count = bits | value << count, count + length

    put(0x2F, 8)
    put(width - 1, 14)
    put(height - 1, 14)
    put(1, 1)  # There is alpha.
    put(0, 3)  # Version.
    put(0, 3)  # No transform, no colour cache, one set of prefix codes.
    for symbol in (200, 100, 50, 255, 0):
        put(1, 1)  # A simple code
        put(0, 1)  # of one symbol
        put(1, 1)  # of eight bits.
        put(symbol, 8)
    return bits.to_bytes(-(-count // 8), "little")


def webps() -> Iterator[tuple[str, bytes]]:
    lossless = vp8l(33, 17)
    yield "lossless.webp", riff((b"VP8L", lossless))
    size = (32).to_bytes(3, "little") + (16).to_bytes(3, "little")
    flags = 0x18  # Alpha and EXIF.
    extended = (b"VP8X", bytes((flags, 0, 0, 0)) + size)
    yield "turned.webp", riff(extended, (b"VP8L", lossless), (b"EXIF", exif(6)))
    animated = (b"VP8X", bytes((0x02, 0, 0, 0)) + size)
    frame = bytes(6) + size + bytes(4) + b"VP8L" + struct.pack("<I", len(lossless)) + lossless
    yield "animated.webp", riff(animated, (b"ANIM", bytes(6)), (b"ANMF", frame))
