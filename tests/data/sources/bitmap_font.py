"""A font with color bitmaps (CBDT), as Noto's: of one size, each of one color."""

import io

from fontTools.fontBuilder import FontBuilder
from fontTools.ttLib import newTable
from fontTools.ttLib.tables.BitmapGlyphMetrics import SmallGlyphMetrics
from fontTools.ttLib.tables.C_B_D_T_ import cbdt_bitmap_format_17
from fontTools.ttLib.tables.E_B_L_C_ import BitmapSizeTable, SbitLineMetrics, Strike, eblc_index_sub_table_1
from PIL import Image

UNITS, ADVANCE, WIDTH, HEIGHT = 2048, 2550, 136, 128


def write_font(path, colors):
    """Writes a font that draws code points as bitmaps of a color."""
    glyphs = {code: f"u{code:X}" for code in colors}
    builder = FontBuilder(UNITS)
    builder.setupGlyphOrder([".notdef", *glyphs.values()])
    builder.setupCharacterMap(glyphs)
    builder.setupHorizontalMetrics(dict.fromkeys([".notdef", *glyphs.values()], (ADVANCE, 0)))
    builder.setupHorizontalHeader(ascent=1900, descent=-500)
    builder.setupNameTable({"familyName": "Bitmaps", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=1900, sTypoDescender=-500)
    builder.setupPost()
    drawn = {}
    for code, color in colors.items():
        bitmap = cbdt_bitmap_format_17(b"", builder.font)
        bitmap.metrics = metrics = SmallGlyphMetrics()
        metrics.height, metrics.width, metrics.BearingX, metrics.BearingY = HEIGHT, WIDTH, 0, 101
        metrics.Advance = WIDTH
        file = io.BytesIO()
        Image.new("RGBA", (WIDTH, HEIGHT), (*color, 255)).save(file, "PNG")
        bitmap.imageData = file.getvalue()
        drawn[glyphs[code]] = bitmap
    strike, size = Strike(), BitmapSizeTable()
    size.hori, size.vert = SbitLineMetrics(), SbitLineMetrics()
    for line in (size.hori, size.vert):
        for name in ("caretSlopeNumerator", "caretSlopeDenominator", "caretOffset", "minOriginSB", "minAdvanceSB"):
            setattr(line, name, 0)
        line.ascender, line.descender, line.widthMax = 101, -27, WIDTH
        line.maxBeforeBL = line.minAfterBL = line.pad1 = line.pad2 = 0
    size.ppemX = size.ppemY = 109
    size.bitDepth, size.flags, size.colorRef = 32, 1, 0
    size.startGlyphIndex, size.endGlyphIndex = 1, len(glyphs)
    strike.bitmapSizeTable = size
    table = eblc_index_sub_table_1(b"", builder.font)
    table.names, table.indexFormat, table.imageFormat = [*glyphs.values()], 1, 17
    strike.indexSubTables = [table]
    builder.font["CBLC"], builder.font["CBDT"] = newTable("CBLC"), newTable("CBDT")
    builder.font["CBLC"].version, builder.font["CBLC"].strikes = 3.0, [strike]
    builder.font["CBDT"].version, builder.font["CBDT"].strikeData = 3.0, [drawn]
    builder.save(path)
    return path
