import java.nio.file.Path;
import java.util.Scanner;

/** Classifies one image of a digit: 64 numbers from the standard input, dark is large. */
public final class Classify {
    public static void main(String[] arguments) {
        Scanner scanner = new Scanner(System.in).useLocale(java.util.Locale.ROOT);
        float[] image = new float[64];
        for (int i = 0; i < image.length; i++) {
            image[i] = scanner.nextFloat();
        }
        try (Network network = new Network(Path.of(arguments[0]), 0)) {
            float[] probability = network.run(image)[0];
            int best = 0;
            for (int digit = 1; digit < probability.length; digit++) {
                best = probability[digit] > probability[best] ? digit : best;
            }
            System.out.println(best);
        }
    }
}
