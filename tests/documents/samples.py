"""Small real files of every format, written from scratch for the tests."""

import io
import zipfile
from pathlib import Path


def pdf_bytes(pages: list[list[str]], title: str = "") -> bytes:
    """A PDF with one text line per string; an empty list is a page without text, as a scan has."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for index, lines in enumerate(pages):
        escaped = (line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)") for line in lines)
        shown = " ".join(f"({line}) Tj 0 -14 Td" for line in escaped)
        stream = f"BT /F1 11 Tf 72 720 Td {shown} ET" if lines else ""
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>"
            f" /Contents {5 + 2 * index} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream.encode('cp1252'))} >>\nstream\n{stream}\nendstream")
    objects.append(f"<< /Title ({title}) >>")
    out = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("cp1252")
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    trailer = f"<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>"
    xref = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n{trailer}\nstartxref\n{len(out)}\n%%EOF\n"
    return out + xref.encode()


def epub_bytes(chapters: list[str], title: str = "A Book", encryption: str = "") -> bytes:
    """An EPUB 3 whose chapters are the given XHTML bodies, in a folder whose name needs unquoting."""
    items = "".join(
        f'<item id="c{i}" href="ch%20{i}.xhtml" media-type="application/xhtml+xml"/>' for i in range(len(chapters))
    )
    spine = "".join(f'<itemref idref="c{i}"/>' for i in range(len(chapters)))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as book:
        book.writestr("mimetype", "application/epub+zip")
        book.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles>'
            '<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
        )
        book.writestr(
            "OEBPS/book.opf",
            '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
            f'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{title}</dc:title></metadata><manifest>'
            '<item id="nav" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>'
            f'{items}</manifest><spine><itemref idref="nav"/>{spine}</spine></package>',
        )
        book.writestr("OEBPS/nav.xhtml", "<html><body><nav>CONTENTS LIST</nav></body></html>")
        for i, body in enumerate(chapters):
            book.writestr(
                f"OEBPS/ch {i}.xhtml",
                f'<?xml version="1.0" encoding="utf-8"?><html><head><title/></head><body>{body}</body></html>',
            )
        if encryption:
            book.writestr("META-INF/encryption.xml", f'<encryption><CipherReference URI="{encryption}"/></encryption>')
    return buffer.getvalue()


def write(path: Path, data: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path
